"""The file log against a list: any order of appends, retries, reopenings, kills and power losses."""

import random
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.core.schema import TIMESTAMP, Schema
from penstock.core.time import NEVER, FixedClock
from penstock.errors import Fenced, SequenceGap
from penstock.log.file.log import FileLog
from penstock.log.file.topic import FileTopic
from penstock.log.port import Appended, Sender, TopicSpec
from penstock.storage.faulty import FaultyStorage

NOW = 1_700_000_000_000_000
DAY = 86_400_000_000
SPEC = TopicSpec("t", 2, Schema.of("id long, at timestamp"), "at")
PARTITIONS = st.integers(0, 1)
TIMES = st.lists(st.integers(NOW - 100, NOW + 100) | st.just(NOW + 2 * DAY), min_size=1, max_size=4)


@dataclass
class Entry:
    """A frame as the model has it."""

    base: int
    ids: list[int]
    times: list[int]
    mark: int
    sender: Sender | None
    appended: int

    @property
    def plausible(self) -> int:
        return max((t for t in self.times if t <= self.appended + DAY), default=NEVER)


@dataclass
class Model:
    entries: list[Entry] = field(default_factory=list)

    @property
    def next(self) -> int:
        return sum(len(entry.ids) for entry in self.entries)

    def expect(self, sender: Sender | None) -> Entry | type[Exception] | None:
        """The earlier answer, the error, or None if the append is new."""
        mine = [e for e in self.entries if sender and e.sender and e.sender.id == sender.id]
        if not sender or not mine:
            return None
        if sender.epoch > mine[-1].sender.epoch:
            return SequenceGap if sender.gaps and sender.sequence < mine[-1].sender.sequence else None
        if sender.epoch < mine[-1].sender.epoch:
            return Fenced
        for entry in mine:
            if entry.sender[1:3] == sender[1:3]:
                return entry
        ahead = sender.sequence - mine[-1].sender.sequence
        return None if ahead == 1 or (ahead > 0 and sender.gaps) else SequenceGap


class LogMachine(RuleBasedStateMachine):
    @initialize(size=st.sampled_from([1, 1500, 1 << 20]))
    def create(self, size: int) -> None:
        self.storage, self.clock, self.size = FaultyStorage(), FixedClock(NOW), size
        self.models = [Model(), Model()]
        self.next_id = 0
        FileLog(self.storage, self.clock, size).create(SPEC)
        self.handles = [self.opened(), self.opened()]

    def opened(self) -> FileTopic:
        return FileLog(self.storage, self.clock, self.size).topic("t")

    @rule(partition=PARTITIONS, handle=st.integers(0, 1), times=TIMES, mark=st.sampled_from([NEVER, NOW, NOW + 50]))
    def append(self, partition: int, handle: int, times: list[int], mark: int, sender: Sender | None = None) -> None:
        ids = list(range(self.next_id, self.next_id + len(times)))
        self.next_id += len(times)
        rows = pa.record_batch({"id": pa.array(ids, pa.int64()), "at": pa.array(times, TIMESTAMP)})
        model = self.models[partition]
        expected = model.expect(sender)
        if isinstance(expected, type):
            with pytest.raises(expected):
                self.handles[handle].append(partition, rows, mark=mark, sender=sender)
            return
        answer = self.handles[handle].append(partition, rows, mark=mark, sender=sender)
        if expected:
            assert answer == Appended(expected.base, len(expected.ids), True)
            return
        assert answer == Appended(model.next, len(ids), False)
        appended = max([self.clock.now(), *(e.appended for e in model.entries)])
        model.entries.append(Entry(answer.base, ids, times, mark, sender, appended))

    @rule(
        partition=PARTITIONS,
        handle=st.integers(0, 1),
        sender=st.builds(Sender, st.sampled_from("pq"), st.integers(0, 2), st.integers(0, 5), st.booleans()),
    )
    def send(self, partition: int, handle: int, sender: Sender) -> None:
        self.append(partition, handle, [NOW], NEVER, sender)

    @rule(partition=PARTITIONS, handle=st.integers(0, 1), id=st.sampled_from("pq"))
    def send_next(self, partition: int, handle: int, id: str) -> None:
        mine = [e.sender for e in self.models[partition].entries if e.sender and e.sender.id == id]
        epoch, sequence = mine[-1][1:3] if mine else (0, -1)
        self.append(partition, handle, [NOW - 1], NEVER, Sender(id, epoch, sequence + 1))

    @rule(partition=PARTITIONS, mark=st.integers(NOW - 10, NOW + 10))
    def mark(self, partition: int, mark: int) -> None:
        model = self.models[partition]
        assert self.handles[0].append(partition, None, mark=mark) == Appended(model.next, 0, False)
        appended = max([self.clock.now(), *(e.appended for e in model.entries)])
        model.entries.append(Entry(model.next, [], [], mark, None, appended))

    @rule(by=st.integers(-50, 50))
    def turn_the_clock(self, by: int) -> None:
        self.clock.set(self.clock.now() + by)

    @rule(handle=st.integers(0, 1))
    def reopen(self, handle: int) -> None:
        self.handles[handle] = self.opened()

    @rule(seed=st.integers(0, 2**32))
    def lose_power(self, seed: int) -> None:
        image = self.storage.crash(random.Random(seed))
        self.storage = FaultyStorage({path: bytes(content) for path, content in image.files.items()})
        self.handles = [self.opened(), self.opened()]

    @rule(partition=PARTITIONS, handle=st.integers(0, 1), start=st.integers(0, 30), length=st.integers(0, 30))
    def read_a_range(self, partition: int, handle: int, start: int, length: int) -> None:
        entries, stop = self.models[partition].entries, start + length
        topic = self.handles[handle]
        found = [chunk.rows.column("id").to_pylist() for chunk in topic.read(partition, start, stop)]
        assert found == [e.ids for e in entries if e.ids and e.base < stop and e.base + len(e.ids) > start]
        held = [
            e
            for e in entries
            if (e.ids and e.base < stop and e.base + len(e.ids) > start) or (not e.ids and start <= e.base <= stop)
        ]
        assert [(f.base, f.count) for f in topic.frames(partition, start, stop)] == [(e.base, len(e.ids)) for e in held]

    @invariant()
    def both_agree(self) -> None:
        for handle in getattr(self, "handles", []):
            for partition, model in enumerate(self.models):
                self.agree(handle, partition, model)

    def agree(self, topic: FileTopic, partition: int, model: Model) -> None:
        time = mark = NEVER
        frames = topic.frames(partition)
        assert len(frames) == len(model.entries)
        for frame, entry in zip(frames, model.entries, strict=True):
            assert (frame.base, frame.count, frame.mark, frame.sender) == (entry.base, len(entry.ids), entry.mark, entry.sender)
            assert (frame.time_before, frame.mark_before, frame.appended) == (time, mark, entry.appended)
            time, mark = max(time, entry.plausible), max(mark, entry.mark)
        end = topic.ends()[partition]
        assert (end.first, end.next, end.time, end.mark) == (0, model.next, time, mark)


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=60, stateful_step_count=25, deadline=None, print_blob=True)
