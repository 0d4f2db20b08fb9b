"""A member's seat while a program works: heartbeats go on in the background, and what is in hand is told with each.

One lock is held while a heartbeat runs and while a partition is taken in hand, so that no heartbeat gives a partition away
between the moment in which it is chosen and the moment in which the group knows that it is busy.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.errors import DiskFull, Fenced, NotFound, PenstockError, StorageError
from penstock.log.groups.port import Groups, Hand, Membership, Source, Standing
from penstock.log.groups.reading import Batch
from penstock.log.port import End, Log, Topic

BEAT = 1.0  # seconds between two heartbeats, where the lease allows
HURRY = 0.2  # the same while a partition is waited for
_NOTHING = Standing(0, {})


@dataclass(frozen=True)
class Chair:
    """Where a member sits: group, topic, and how it is called."""

    group: str
    topic: str
    label: str
    lease: float  # seconds


class Seat:
    """A seat in a group. `held`, `positions` and `standing` are read and changed under `guard`."""

    def __init__(self, log: Log, groups: Groups, chair: Chair, begin: Callable[[Topic], Mapping[int, int]]) -> None:
        self._log, self._groups, self.chair, self._begin = log, groups, chair, begin
        self.guard = threading.RLock()
        self.topic: Topic = log.topic(chair.topic)
        self.id = self.topic.id
        self.standing = _NOTHING
        self.positions: dict[int, int] = {}  # of the partitions owned: the next offset to be read
        self.committed: dict[int, int] = {}
        self.held: dict[int, tuple[int, float]] = {}  # the first offset in hand, and since when
        self.asked: dict[int, float] = {}  # partitions that others wait for, and since when
        self._membership: Membership | None = None
        self._error: PenstockError | None = None
        self._lost: Fenced | None = None
        self._renewed = 0.0
        self._wake, self._ended = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name=f"penstock-group-{chair.group}", daemon=True)

    def start(self) -> None:
        """Joins and begins to beat."""
        with self.guard:
            self._join()
            self._beat()
        self._thread.start()

    def end(self) -> None:
        """Ends the heartbeats and gives the seat back."""
        self._ended = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._membership:
            self._membership.leave()

    def check(self) -> None:
        """Raises what the heartbeats met. A process that was stopped for longer than its lease learns here what became of it."""
        with self.guard:
            if self._lost or time.monotonic() - self._renewed >= self.chair.lease:
                self.beat()
            if self._error or self._lost:
                raise self._error or self._lost  # type: ignore[misc]

    def ends(self) -> dict[int, End]:
        """The ends of the topic. One that was deleted is told as the heartbeats see it: gone, or made again."""
        try:
            return self.topic.ends()
        except NotFound:
            self.beat()
            self.check()
            raise

    def take_up(self, partition: int, limit: int) -> int | None:
        """The offset to go on with, if the partition is this member's and has rows before limit; it is in hand from now on."""
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
        """Whether one more record may be handed out; it is in hand from now on."""
        with self.guard:
            if partition not in self.positions or partition in self.asked:
                return False
            self.hold(partition, offset)
            return True

    def release(self, partition: int, position: int | None = None) -> None:
        """The work on what was in hand is done or given up. position: where to go on, if not behind all that was read."""
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
                if time.monotonic() - self._renewed >= self.chair.lease:  # until then the next heartbeat may do better
                    self._error = error
            except PenstockError as error:
                self._error = error

    def _beat_or_join(self) -> None:
        """With work in hand a lost seat stays lost: its commit must fail. Without, nothing is lost: it sits down anew."""
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
        usual = min(BEAT, self.chair.lease / 5)
        return min(HURRY, usual) if self.standing.waiting else usual

    def _join(self) -> None:
        self._see_topic()
        chair = self.chair
        begin = self._begin(self.topic)
        self._membership = self._groups.join(chair.group, self._source(), begin, label=chair.label, lease=chair.lease)

    def _beat(self) -> None:
        assert self._membership
        self._see_topic()
        began = time.monotonic()
        busy = {number: Hand(offset, began - since) for number, (offset, since) in self.held.items()}
        self.standing = self._membership.heartbeat(self._source(), busy)
        self._renewed = began
        self.committed = dict(self.standing.owned)
        self.positions = {number: self.positions.get(number, offset) for number, offset in self.committed.items()}
        self.asked = {number: self.asked.get(number, began) for number in self.standing.asked}

    def _see_topic(self) -> None:
        self.topic = self._log.topic(self.chair.topic)

    def _source(self) -> Source:
        return Source(self.chair.topic, self.topic.id, self.topic.spec.partitions)
