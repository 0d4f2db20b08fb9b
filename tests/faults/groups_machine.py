"""A group against a naive model: any order of joining, leaving, dying, committing, resetting and growing, time in the test's hands.

The model knows nothing of how partitions are shared out: it remembers what each member was last told, and demands that two members
who are alive were never told the same partition.
"""

import tempfile
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.core.time import FixedClock
from penstock.errors import BadInput, Fenced, InUse, Mismatch
from penstock.log.groups.leases import ManualClock
from penstock.log.groups.memory import MemoryGroups
from penstock.log.groups.port import Groups, InFlight, Membership, Source
from penstock.log.groups.sqlite import SqliteGroups

LEASE = 10
WHICH = st.tuples(st.integers(0, 5), st.integers(0, 3))  # a member; now and then one that may be dead
BUSY = st.sets(st.integers(0, 6)) | st.just(frozenset(range(7)))
OFFSETS = st.integers(0, 12)


@dataclass
class Seat:
    """What the model knows of a member."""

    membership: Membership
    ends: float  # when its lease runs out
    told: set[int] = field(default_factory=set)
    left: bool = False


class GroupMachine(RuleBasedStateMachine):
    def make(self, clock: FixedClock, leases: ManualClock) -> Groups:
        return MemoryGroups(clock, leases)

    @initialize(partitions=st.integers(1, 5), begin=st.dictionaries(st.integers(0, 4), OFFSETS), more=st.integers(0, 2))
    def begin(self, partitions: int, begin: dict[int, int], more: int) -> None:
        self.clock, self.leases = FixedClock(1_700_000_000_000_000), ManualClock()
        self.groups = self.make(self.clock, self.leases)
        self.source = Source("t", "life-1", partitions)
        self.known = self.source.id  # the life of the topic that the group's offsets are of
        self.seats: list[Seat] = []
        self.offsets: dict[int, int] = {}
        self.first = begin
        self.join()
        self.heartbeat(self.seats[0], set())
        for _ in range(more):
            self.join()

    @property
    def now(self) -> float:
        return self.leases.at / 1e6

    def alive(self, seat: Seat) -> bool:
        return not seat.left and self.now < seat.ends

    def living(self) -> list[Seat]:
        return [seat for seat in self.seats if self.alive(seat)]

    def pick(self, which: tuple[int, int]) -> Seat:
        among = (which[1] and self.living()) or self.seats
        return among[which[0] % len(among)]

    @rule()
    def join(self) -> None:
        try:
            membership = self.groups.join("g", self.source, self.first, label="m", lease=LEASE)
        except Mismatch:
            assert self.known != self.source.id
            return
        assert self.known == self.source.id
        if not self.offsets:
            self.offsets = {number: self.first.get(number, 0) for number in range(self.source.partitions)}
        self.see_all_partitions()
        self.seats.append(Seat(membership, self.now + LEASE))

    @rule(which=WHICH, busy=BUSY)
    def one_heartbeat(self, which: tuple[int, int], busy: AbstractSet[int]) -> None:
        self.heartbeat(self.pick(which), busy)

    @rule(busy=BUSY)
    def heartbeats(self, busy: AbstractSet[int]) -> None:
        for seat in self.living():
            self.heartbeat(seat, busy)

    def heartbeat(self, seat: Seat, busy: AbstractSet[int]) -> None:
        busy = busy & seat.told
        try:
            standing = seat.membership.heartbeat(self.source, {number: InFlight(0, 0.0) for number in busy})
        except Fenced:
            assert not self.alive(seat)
            return
        except Mismatch:
            assert self.alive(seat)
            assert self.known != self.source.id
            return
        assert self.alive(seat)
        assert self.known == self.source.id
        seat.told, seat.ends = set(standing.owned), self.now + LEASE
        self.see_all_partitions()
        assert busy <= seat.told, "what is busy stays"
        assert all(self.offsets[number] == offset for number, offset in standing.owned.items())

    @rule(which=WHICH, partition=st.integers(0, 6), offset=OFFSETS, second=st.none() | st.tuples(st.integers(0, 6), OFFSETS))
    def commit(self, which: tuple[int, int], partition: int, offset: int, second: tuple[int, int] | None) -> None:
        seat, wanted = self.pick(which), {partition: offset} | dict([second] if second else [])
        mine = self.alive(seat) and wanted.keys() <= seat.told
        back = any(at < self.offsets.get(number, 0) for number, at in wanted.items())
        try:
            seat.membership.commit(wanted)
        except Fenced:
            assert not mine
        except BadInput:
            assert back
        else:
            assert mine
            assert not back
            self.offsets |= wanted

    @rule(which=WHICH)
    def leave(self, which: tuple[int, int]) -> None:
        seat = self.pick(which)
        seat.membership.leave()
        seat.left, seat.told = True, set()

    @rule(seconds=st.sampled_from([0.5, 1, 3, 5, 9.5, 10, 30]))
    def time_passes(self, seconds: float) -> None:
        self.leases.advance(seconds)
        for seat in self.seats:
            if not self.alive(seat):
                seat.told = set()

    @rule(jump=st.sampled_from([3600, -3600]))
    def somebody_sets_the_clock(self, jump: int) -> None:
        self.clock.set(self.clock.now() + jump * 1_000_000)

    @rule()
    @precondition(lambda self: self.source.partitions < 7)
    def a_partition_is_added(self) -> None:
        self.source = self.source._replace(partitions=self.source.partitions + 1)

    @rule(really=st.integers(0, 3))
    def the_topic_is_made_again(self, really: int) -> None:
        if really:
            return
        self.source = self.source._replace(id=self.source.id + "x")

    @rule(offsets=st.dictionaries(st.integers(0, 3), OFFSETS, min_size=1))
    def put(self, offsets: dict[int, int]) -> None:
        try:
            self.groups.put("g", self.source, offsets)
        except InUse:
            assert self.living()
            return
        assert not self.living()
        self.offsets = offsets if self.known != self.source.id else self.offsets | offsets
        self.known = self.source.id

    @rule()
    @precondition(lambda self: self.known == self.source.id and self.living())
    def calm(self) -> None:
        """Once nobody comes or goes, two rounds of heartbeats give every partition an owner, evenly."""
        for _ in range(3):
            for seat in self.living():
                self.heartbeat(seat, set())
        counts = [len(seat.told) for seat in self.living()]
        assert sum(counts) == len(self.offsets)
        assert max(counts) - min(counts) <= 1

    @invariant()
    def no_partition_is_owned_twice(self) -> None:
        told = [number for seat in self.living() for number in seat.told]
        assert len(told) == len(set(told)), f"told twice: {told}"

    @invariant()
    def what_is_shown_is_what_was_told(self) -> None:
        [state] = self.groups.describe("g")
        assert {part.partition: part.offset for part in state.partitions} == self.offsets
        assert [member.id for member in state.members] == [seat.membership.id for seat in self.living()]
        owners = {part.partition: part.owner for part in state.partitions if part.owner}
        assert owners == {number: seat.membership.id for seat in self.living() for number in seat.told}
        assert [(held.partition, held.offset) for held in self.groups.positions("t")] == sorted(self.offsets.items())

    def see_all_partitions(self) -> None:
        for number in range(self.source.partitions):
            self.offsets.setdefault(number, 0)


class SqliteGroupMachine(GroupMachine):
    """The same over a file, opened anew by every other call's process, so to speak: two keepers of one file take turns."""

    def make(self, clock: FixedClock, leases: ManualClock) -> Groups:
        self.place = tempfile.TemporaryDirectory()
        path = Path(self.place.name) / "groups.db"
        self.keepers = [SqliteGroups(path, clock, leases) for _ in range(2)]
        return self.keepers[0]

    @rule()
    def another_process_has_its_turn(self) -> None:
        self.keepers.reverse()
        self.groups = self.keepers[0]

    def teardown(self) -> None:
        if hasattr(self, "place"):
            for keeper in self.keepers:
                keeper.close()
            self.place.cleanup()
