"""Reads a topic as a member of a group: the members share its partitions, and the group remembers how far it has come."""

import os
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Literal

from penstock.core.record import Record
from penstock.core.time import duration
from penstock.errors import BadInput, Fenced, NotFound, OffsetGone, PenstockError
from penstock.log.consumer import POLL, Where, as_records
from penstock.log.groups.names import check_joined
from penstock.log.groups.places import offsets_at
from penstock.log.groups.reading import Batch, read_batch
from penstock.log.groups.session import MemberSession, MemberSettings
from penstock.log.open import open_log
from penstock.log.port import Log, Topic

Commit = Literal["after", "before", "manual"]
LONGEST = 0.1  # seconds between two looks at a topic where nothing happens
OFTEN = 0.2  # seconds between two commits while single records are read, and between two looks at the other members


@dataclass(frozen=True)
class GroupSettings:
    """What most consumers leave as it is."""

    lease: str | timedelta = "10 seconds"  # a member that is silent for so long is taken for dead
    max_rows: int = 10_000  # rows of a batch
    handover: str | timedelta = "30 seconds"  # manual: how long another member waits for what was read and not committed
    label: str | None = None  # how the member is shown; host and process by default


class GroupConsumer:
    """A member of a group, for the time of a `with`.

    >>> with GroupConsumer(None, "web-analytics", "page-views") as consumer:  # doctest: +SKIP
    ...     for batch in consumer:
    ...         work(batch.table)

    commit: "after" (at least once: a batch counts as taken when the loop comes back for the next one), "before" (at most once: it
    counts before it is handed out) or "manual" (when `commit` is called). start: where a group begins that was never here before.
    """

    def __init__(
        self,
        log: Log | None,
        group: str,
        topic: str,
        *,
        commit: Commit = "after",
        start: Where = "earliest",
        settings: GroupSettings | None = None,
    ) -> None:
        if commit not in ("after", "before", "manual"):
            raise BadInput(f"{commit!r} does not say when to commit", hint='"after" the work, "before" it, or "manual"')
        log = log or open_log()
        self._settings = settings or GroupSettings()
        self._mode, self._start, self._groups = commit, start, log.groups()
        self.session = MemberSession(
            log, self._groups, _member(group, topic, self._settings), self._begin
        )  # this member, as the group knows it
        self._handover = duration(self._settings.handover, "handover").total_seconds()
        self._handed: dict[int, int] = {}  # behind what was handed out and is not yet committed
        self._taken: dict[int, int] = {}  # the same, of what the loop came back from
        self._given_up: list[int] = []  # manual: what another member got before it was committed
        self._turn, self._committed, self._looked, self._stopped = 0, 0.0, 0.0, False

    @property
    def group(self) -> str:
        return self.session.member.group

    @property
    def topic(self) -> Topic:
        return self.session.topic

    @property
    def topic_id(self) -> str:
        """Of the topic that was there when the consumer was made."""
        return self.session.id

    @property
    def partitions(self) -> list[int]:
        """The partitions that are this member's now."""
        return sorted(self.session.positions)

    def __enter__(self) -> "GroupConsumer":
        self.session.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Commits what the loop came back from; what was in flight when the loop was left is not committed."""
        try:
            self._flush()
        except PenstockError:
            if error is None:
                raise
        finally:
            self.session.end()

    def __iter__(self) -> Iterator[Batch]:
        return self.batches()

    def batches(self, follow: bool = True) -> Iterator[Batch]:
        """Tables of rows, one partition after the other. On and on; follow=False: until the group has read what is there now."""
        for batch in self._batches(follow):
            self._handed[batch.partition] = batch.next
            try:
                yield batch
            except GeneratorExit:
                self._break_off(batch)
                raise
            self._take(batch.partition)
            self._finish(batch)

    def records(self, follow: bool = True) -> Iterator[Record]:
        """The same, a record at a time. With commit="after" a record counts as taken when the loop comes back; commits are brought
        together, a few a second. With "before" a whole batch counts before its first record is handed out."""
        for batch in self._batches(follow):
            try:
                yield from self._each(batch)
            except GeneratorExit:
                self._break_off(batch)
                raise
            self._finish(batch)

    def commit(self) -> None:
        """What was handed out so far counts as taken. Fenced if some of it belongs to another member now, which reads it again."""
        done = list(self._handed)
        self._taken |= self._handed if self._mode != "before" else {}
        self._flush()
        for number in done if self._mode == "manual" else ():
            self.session.release(number)
        if self._given_up:
            lost, self._given_up = self._given_up, []
            raise Fenced(
                f"{', '.join(f'{self.topic.spec.name}/{n}' for n in lost)} went to another member before it was committed",
                hint="that one reads the records again; commit more often, or set handover= higher",
            )

    def stop(self) -> None:
        """Ends the loop before its next batch or record; from another thread or a signal handler."""
        self._stopped = True

    def _batches(self, follow: bool) -> Iterator[Batch]:
        until = None if follow else {number: end.next for number, end in self.session.ends().items()}
        pause = POLL
        while not self._stopped:
            self.session.check()
            self._hand_over()
            batch = self._next(until)
            if batch:
                pause = POLL
                if self._mode == "before":
                    self._commit({batch.partition: batch.next})
                yield batch
            elif until is not None and self._group_at(until):
                return
            else:
                time.sleep(pause)
                pause = min(pause * 1.2, LONGEST)

    def _next(self, until: Mapping[int, int] | None) -> Batch | None:
        """Takes the next rows of the next partition in turn that has any."""
        numbers = self._in_turn()
        ends = self.session.ends() if numbers else {}
        for number in numbers:
            limit = ends[number].next if number in ends else 0
            earlier = self.session.held.get(number)  # manual: rows that were not committed
            start = self.session.take_up(number, min(limit, until.get(number, 0)) if until is not None else limit)
            if start is None:
                continue
            self._turn = number + 1
            batch = self._read(number, start, limit)
            if self.session.put_down(batch, earlier):
                return batch
        return None

    def _in_turn(self) -> list[int]:
        numbers = self.partitions
        return [n for n in numbers if n >= self._turn] + [n for n in numbers if n < self._turn]

    def _read(self, number: int, start: int, limit: int) -> Batch:
        try:
            return read_batch(self.topic, number, start, limit, self._settings.max_rows)
        except OffsetGone as gone:
            name, first = self.topic.spec.name, self.topic.ends()[number].first
            raise OffsetGone(
                f"{name}/{number}: records {start} to {first - 1} were removed before group {self.group} read them",
                hint=f"penstock group reset {self.group} {name} --to earliest --partition {number} goes on with what is there",
            ) from gone

    def _each(self, batch: Batch) -> Iterator[Record]:
        number = batch.partition
        for record in as_records(self.topic.spec, batch.table):
            self.session.check()
            if self._mode != "before" and (self._stopped or not self.session.go_on(number, record.offset)):
                return
            self._handed[number] = record.offset + 1
            yield record
            self._take(number)
            if time.monotonic() - self._committed >= OFTEN:
                self._flush()
        self._handed[number] = batch.next
        self._take(number)

    def _take(self, number: int) -> None:
        """The loop came back: with commit="after" what was handed out counts."""
        if self._mode == "after":
            self._taken[number] = self._handed[number]
        elif self._mode == "before":
            self._handed.pop(number, None)

    def _finish(self, batch: Batch) -> None:
        """The batch is no longer in flight. Rows that were not handed out are read again, here or by another member."""
        if self._mode == "after":
            self._flush()
        self._break_off(batch)

    def _break_off(self, batch: Batch) -> None:
        number = batch.partition
        if self._mode == "after":
            self._handed.pop(number, None)
            self.session.release(number, self._taken.get(number, self.session.committed.get(number, 0)))
        elif self._mode == "before":
            self._handed.pop(number, None)
            self.session.release(number)
        else:
            self.session.rewind(number, self._handed.get(number, self.session.committed.get(number, 0)))

    def _flush(self) -> None:
        taken, self._taken = self._taken, {}
        if taken:
            self._commit(taken)

    def _commit(self, offsets: Mapping[int, int]) -> None:
        known = self.session.committed
        new = {number: offset for number, offset in offsets.items() if offset != known.get(number)}
        if new:
            self.session.commit(new)
        self._committed = time.monotonic()
        for number, offset in offsets.items():
            if self._handed.get(number, offset) <= offset:
                self._handed.pop(number, None)

    def _hand_over(self) -> None:
        """Manual: gives up what another member has waited for too long."""
        now = time.monotonic()
        for number, since in list(self.session.asked.items()):
            if number in self._handed and now - since >= self._handover:
                self._given_up.append(number)
                del self._handed[number]
                self.session.release(number)

    def _group_at(self, until: Mapping[int, int]) -> bool:
        """Whether the group has come that far: this member, and those that have the other partitions."""
        with self.session.guard:
            mine = dict(self.session.positions)
        if any(mine[number] < until.get(number, 0) for number in mine):
            return False
        others = {number: offset for number, offset in until.items() if number not in mine}
        if not others:
            return True
        if time.monotonic() - self._looked < OFTEN:
            return False
        self._looked = time.monotonic()
        [state] = [state for state in self._groups.describe(self.group) if state.topic == self.session.member.topic]
        at = {part.partition: part.offset for part in state.partitions}
        return all(at.get(number, 0) >= offset for number, offset in others.items())

    def _begin(self, topic: Topic) -> Mapping[int, int]:
        """Where the group begins, if it was never here before."""
        try:
            known = self._groups.describe(self.group)
        except NotFound:
            known = []
        return {} if any(state.topic == topic.spec.name for state in known) else offsets_at(topic, self._start)


def _member(group: str, topic: str, settings: GroupSettings) -> MemberSettings:
    if settings.max_rows < 1:
        raise BadInput(f"max_rows cannot be {settings.max_rows}", hint="max_rows=1 is one record at a time")
    label = settings.label or f"{socket.gethostname()}:{os.getpid()}"
    return MemberSettings(check_joined(group), topic, label, duration(settings.lease, "lease").total_seconds())
