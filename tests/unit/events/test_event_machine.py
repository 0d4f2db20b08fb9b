"""The event store on the log against a dictionary: appends, retries, new processes, cleanings, lost indexes, power losses."""

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.core.time import FixedClock
from penstock.errors import AlreadyThere, PenstockError, VersionConflict
from penstock.events.event import Append, NewEvent
from penstock.events.expected import ANY, EXISTS, NEW, Version
from penstock.events.on_log.rows import topic_spec
from penstock.events.on_log.streams import LogStreams
from penstock.events.on_log.verifying import verify
from penstock.log.file.log import FileLog
from penstock.storage.faulty import FaultyStorage

NOW = 1_700_000_000_000_000
NAMES = ["a", "b", "c", "d"]
STREAM = st.sampled_from(NAMES)
EXPECTED = st.sampled_from([NEW, ANY, EXISTS]) | st.integers(0, 6)
WRITER = st.integers(0, 2)


@dataclass
class Naive:
    """A store as short as can be: the ids of every stream."""

    streams: dict[str, list[str]] = field(default_factory=dict)

    def append(self, changes: dict[str, list[str]], expected: Version) -> dict[str, int] | type[PenstockError]:
        """The version of each stream's last event, or the error."""
        there = {name: [id for id in ids if id in self.streams.get(name, [])] for name, ids in changes.items()}
        if any(there.values()):
            places = {name: [self.streams[name].index(id) for id in ids if id in there[name]] for name, ids in changes.items()}
            whole = all(len(p) == len(changes[n]) and p == list(range(p[0], p[0] + len(p))) for n, p in places.items())
            return {name: place[-1] + 1 for name, place in places.items()} if whole else AlreadyThere
        for name in changes:
            version = len(self.streams.get(name, []))
            fits = {NEW: version == 0, ANY: True, EXISTS: version > 0}.get(expected, version == expected)  # type: ignore[call-overload]
            if not fits:
                return VersionConflict
        for name, ids in changes.items():
            self.streams.setdefault(name, []).extend(ids)
        return {name: len(self.streams[name]) for name in changes}


class EventMachine(RuleBasedStateMachine):
    @initialize(size=st.sampled_from([1, 3_000, 1 << 20]), partitions=st.integers(1, 2))
    def create(self, size: int, partitions: int) -> None:
        self.storage, self.clock, self.size = FaultyStorage(), FixedClock(NOW), size
        self.naive, self.next_id = Naive(), 0
        self.log.create(topic_spec("t", partitions))
        self.writers = [self.opened(), self.opened(), self.opened()]

    @property
    def log(self) -> FileLog:
        return FileLog(self.storage, self.clock, self.size)

    def opened(self) -> LogStreams:
        return LogStreams(self.log.topic("t"), self.clock, flush=3)

    @rule(writer=WRITER, stream=STREAM, count=st.integers(1, 3), expected=EXPECTED)
    def append(self, writer: int, stream: str, count: int, expected: Version) -> None:
        ids = [f"{self.next_id + n}" for n in range(count)]
        self.next_id += count
        self.put(writer, {stream: ids}, expected)

    @rule(writer=WRITER, one=STREAM, other=STREAM, expected=EXPECTED)
    def append_together(self, writer: int, one: str, other: str, expected: Version) -> None:
        if self.writers[0].partition_of(one) == self.writers[0].partition_of(other):
            self.next_id += 1
            self.put(writer, {name: [f"{self.next_id}-{name}"] for name in {one, other}}, expected)

    @rule(writer=WRITER, stream=STREAM, start=st.integers(0, 20), count=st.integers(1, 3), expected=EXPECTED, more=st.booleans())
    def append_again(self, writer: int, stream: str, start: int, count: int, expected: Version, more: bool) -> None:
        known = self.naive.streams.get(stream, [])
        ids = known[start % max(len(known), 1) :][:count]
        if more:
            self.next_id += 1
            ids = [*ids, f"{self.next_id}-new"]
        if ids:
            self.put(writer, {stream: ids}, expected)

    def put(self, writer: int, changes: dict[str, list[str]], expected: Version) -> None:
        self.clock.set(self.clock.now() + 1)
        before = {name: len(ids) for name, ids in self.naive.streams.items()}
        answer = self.naive.append(changes, expected)
        appends = [Append(n, tuple(NewEvent("E", 1, "{}", id, None) for id in ids), expected) for n, ids in changes.items()]
        if isinstance(answer, dict):
            found = self.writers[writer].append(appends)
            assert {written.stream: written.version for written in found} == answer
            assert {written.duplicate for written in found} == {all(v <= before.get(n, 0) for n, v in answer.items())}
        else:
            with pytest.raises(answer):
                self.writers[writer].append(appends)

    @rule(writer=WRITER)
    def a_new_process(self, writer: int) -> None:
        self.writers[writer] = self.opened()

    @rule()
    def clean(self) -> None:
        self.log.clean("t")

    @rule(seed=st.integers(0, 1000))
    def lose_power(self, seed: int) -> None:
        image = self.storage.crash(random.Random(seed))
        self.storage = FaultyStorage({path: bytes(content) for path, content in image.files.items()})
        self.writers = [self.opened(), self.opened(), self.opened()]

    @rule(share=st.sampled_from([0.5, 1.0]), seed=st.integers(0, 1000))
    def lose_indexes(self, share: float, seed: int) -> None:
        rng = random.Random(seed)
        for number in range(self.writers[0].topic.spec.partitions):
            _, directory = self.log.topic("t").beside(number)
            for name in self.storage.list(directory):
                if name.endswith(".index") and rng.random() < share:
                    self.storage.remove(f"{directory}/{name}")

    @rule(writer=WRITER, stream=STREAM, start=st.integers(0, 9), count=st.integers(0, 9))
    def read(self, writer: int, stream: str, start: int, count: int) -> None:
        known = list(enumerate(self.naive.streams.get(stream, []), 1))
        wanted = [(version, id) for version, id in known if start <= version <= start + count]
        assert [(e.version, e.id) for e in self.writers[writer].read(stream, start, start + count)] == wanted

    @invariant()
    def every_writer_sees_what_the_naive_store_holds(self) -> None:
        if hasattr(self, "writers"):
            for writer in self.writers[:2]:
                found = {name: [event.id for event in writer.read(name)] for name in NAMES}
                assert {name: ids for name, ids in found.items() if ids} == self.naive.streams

    def teardown(self) -> None:
        if hasattr(self, "writers"):
            for writer in (self.writers[0], self.opened()):
                assert verify(writer).wrong == []
            infos = {info.stream: info.version for info in self.opened().streams()}
            assert infos == {name: len(ids) for name, ids in self.naive.streams.items()}


TestEventMachine = EventMachine.TestCase
TestEventMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None, print_blob=True)


@pytest.mark.long
class TestEventMachineForLong(EventMachine.TestCase):
    settings = settings(max_examples=1_000, stateful_step_count=50, deadline=None, print_blob=True)
