"""A member's session while a program works: heartbeats run in the background, and each reports the records in flight.

One lock is held while a heartbeat runs and while a record of a partition is taken, so that no heartbeat gives a partition away
between the moment it is chosen and the moment the group knows that it is busy.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.errors import DiskFull, Fenced, NotFound, PenstockError, StorageError
from penstock.log.groups.port import Groups, InFlight, Membership, Source, Standing
from penstock.log.groups.reading import Batch
from penstock.log.port import End, Log, Topic

BEAT = 1.0  # seconds between two heartbeats, where the lease allows
HURRY = 0.2  # the same while a partition is waited for
_NOTHING = Standing(0, {})


@dataclass(frozen=True)
class MemberSettings:
    """Which group and topic a member reads, its label and its lease."""

    group: str
    topic: str
    label: str
    lease: float  # seconds


class MemberSession:
    """A member of a group. `held`, `positions` and `standing` are read and changed under `guard`."""

    def __init__(self, log: Log, groups: Groups, member: MemberSettings, begin: Callable[[Topic], Mapping[int, int]]) -> None:
        self._log, self._groups, self.member, self._begin = log, groups, member, begin
        self.guard = threading.RLock()
        self.topic: Topic = log.topic(member.topic)
        self.id = self.topic.id
        self.standing = _NOTHING
        self.positions: dict[int, int] = {}  # of the partitions owned: the next offset to be read
        self.committed: dict[int, int] = {}
        self.held: dict[int, tuple[int, float]] = {}  # the first offset in flight, and since when
        self.asked: dict[int, float] = {}  # partitions that other members wait for, and since when
        self._membership: Membership | None = None
        self._error: PenstockError | None = None
        self._lost: Fenced | None = None
        self._renewed = 0.0
        self._wake, self._ended = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name=f"penstock-group-{member.group}", daemon=True)

    def start(self) -> None:
        """Joins and starts the heartbeats."""
        with self.guard:
            self._join()
            self._beat()
        self._thread.start()

    def end(self) -> None:
        """Stops the heartbeats and leaves the group."""
        self._ended = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._membership:
            self._membership.leave()

    def check(self) -> None:
        """Raises the error of the last heartbeat. A process stopped for longer than its lease learns here that it was fenced."""
        with self.guard:
            if self._lost or time.monotonic() - self._renewed >= self.member.lease:
                self.beat()
            if self._error or self._lost:
                raise self._error or self._lost  # type: ignore[misc]

    def ends(self) -> dict[int, End]:
        """The ends of the topic. If it was deleted, the error is the heartbeats': gone, or created again."""
        try:
            return self.topic.ends()
        except NotFound:
            self.beat()
            self.check()
            raise

    def take_up(self, partition: int, limit: int) -> int | None:
        """The offset to go on with, if the partition is this member's and has rows before limit; it is in flight from now on."""
        with self.guard:
            start = self.positions.get(partition)
            if start is None or start >= limit or partition in self.asked:
                return None
            self.hold(partition, start)
            return start

    def put_down(self, batch: Batch, earlier: tuple[int, float] | None) -> bool:
        """Moves on behind a batch; whether there is anything to hand out. A gap counts as read."""
        number = batch.partition
        with self.guard:
            there = number in self.positions
            if there:
                self.positions[number] = batch.next
            if earlier:
                self.held[number] = earlier
            if there and batch.table.num_rows:
                return True
            if there and not earlier:
                self.commit({number: batch.next})
            if not earlier:
                self.release(number)
            return False

    def hold(self, partition: int, offset: int) -> None:
        self.held[partition] = (offset, time.monotonic())

    def go_on(self, partition: int, offset: int) -> bool:
        """Whether one more record may be handed out; it is in flight from now on."""
        with self.guard:
            if partition not in self.positions or partition in self.asked:
                return False
            self.hold(partition, offset)
            return True

    def release(self, partition: int, position: int | None = None) -> None:
        """The records in flight are processed or given up. position: where to continue, if not after all that was read."""
        with self.guard:
            self.held.pop(partition, None)
            if position is not None:
                self.rewind(partition, position)
            if partition in self.asked:
                self._wake.set()

    def rewind(self, partition: int, position: int) -> None:
        """Goes on there, if the partition is still this member's."""
        with self.guard:
            if partition in self.positions:
                self.positions[partition] = position

    def commit(self, offsets: Mapping[int, int]) -> None:
        with self.guard:
            assert self._membership
            self._membership.commit(offsets)
            self.committed |= offsets

    def beat(self) -> None:
        """One heartbeat; what goes wrong is kept for `check`."""
        with self.guard:
            try:
                self._beat_or_join()
            except Fenced as lost:
                self._lost, self.standing, self.positions, self.asked = lost, _NOTHING, {}, {}
            except (StorageError, DiskFull) as error:
                if time.monotonic() - self._renewed >= self.member.lease:  # until then the next heartbeat may do better
                    self._error = error
            except PenstockError as error:
                self._error = error

    def _beat_or_join(self) -> None:
        """A member that was fenced with records in flight stays fenced: its commit must fail. Without any, it joins again."""
        if self._lost and self.held:
            return
        if self._lost:
            self._join()
            self._lost = None
        self._beat()

    def _run(self) -> None:
        while not self._ended:
            self._wake.wait(self._pause())
            self._wake.clear()
            if not self._ended and not self._error:
                self.beat()

    def _pause(self) -> float:
        usual = min(BEAT, self.member.lease / 5)
        return min(HURRY, usual) if self.standing.waiting else usual

    def _join(self) -> None:
        self._see_topic()
        member = self.member
        begin = self._begin(self.topic)
        self._membership = self._groups.join(member.group, self._source(), begin, label=member.label, lease=member.lease)

    def _beat(self) -> None:
        assert self._membership
        self._see_topic()
        began = time.monotonic()
        busy = {number: InFlight(offset, began - since) for number, (offset, since) in self.held.items()}
        self.standing = self._membership.heartbeat(self._source(), busy)
        self._renewed = began
        self.committed = dict(self.standing.owned)
        self.positions = {number: self.positions.get(number, offset) for number, offset in self.committed.items()}
        self.asked = {number: self.asked.get(number, began) for number in self.standing.asked}

    def _see_topic(self) -> None:
        self.topic = self._log.topic(self.member.topic)

    def _source(self) -> Source:
        return Source(self.member.topic, self.topic.id, self.topic.spec.partitions)
