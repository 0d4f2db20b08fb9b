"""Any order of appends, deletes, marks, retries, cleanings, reopenings and power losses, against a list."""

import random
from datetime import timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from faults.cleaning_model import DAY, NOW, SCHEMA, SECOND, Model, Row
from penstock.core.time import NEVER, FixedClock
from penstock.errors import OffsetGone
from penstock.log.file.log import FileLog
from penstock.log.file.topic import FileTopic
from penstock.log.port import Sender, TopicSpec
from penstock.storage.faulty import FaultyStorage

PLAIN = TopicSpec("t", schema=SCHEMA, time="at", key="id")
SPECS = {
    "plain": PLAIN,
    "retained": TopicSpec("t", schema=SCHEMA, time="at", retain=timedelta(seconds=60), hold=timedelta(0)),
    "compacted": TopicSpec("t", schema=SCHEMA, time="at", compact=True, tombstones=timedelta(seconds=30)),
    "both": TopicSpec("t", schema=SCHEMA, time="at", compact=True, retain=timedelta(seconds=100), tombstones=timedelta(0)),
    "written": TopicSpec("t", schema=SCHEMA, time="at", compact=True, writer="flow"),
}
KEYS = st.sampled_from([None, b"a", b"b", b"c", b""])
TIMES = st.integers(NOW - 50 * SECOND, NOW + 50 * SECOND) | st.just(NOW + 3 * DAY)
ROWS = st.lists(st.tuples(KEYS, TIMES, st.booleans()), min_size=1, max_size=4)
MARKS = st.sampled_from([NEVER, NEVER, NOW, NOW + 5, NOW + 50])


class CleaningMachine(RuleBasedStateMachine):
    @initialize(size=st.sampled_from([1, 1500, 4000]), kind=st.sampled_from(sorted(SPECS)))
    def create(self, size: int, kind: str) -> None:
        self.storage, self.clock, self.size = FaultyStorage(), FixedClock(NOW), size
        self.model, self.next_id, self.sequence = Model(SPECS[kind]), 0, 0
        FileLog(self.storage, self.clock, size).create(SPECS[kind])
        self.handles = [self.opened(), self.opened()]

    def log(self) -> FileLog:
        return FileLog(self.storage, self.clock, self.size)

    def opened(self) -> FileTopic:
        return self.log().topic("t")

    @rule(handle=st.integers(0, 1), given=ROWS, mark=MARKS, stamped=st.booleans())
    def append(self, handle: int, given: list[tuple[bytes | None, int, bool]], mark: int, stamped: bool) -> None:
        rows = [Row(self.next_id + i, key, time, delete and key is not None) for i, (key, time, delete) in enumerate(given)]
        self.next_id += len(rows)
        sender = Sender("p", 0, self.sequence) if stamped else None
        self.model.append(self.handles[handle], rows, mark, sender, self.clock.now())
        self.sequence += stamped

    @rule(handle=st.integers(0, 1), mark=st.integers(NOW - 10, NOW + 40))
    def mark(self, handle: int, mark: int) -> None:
        self.model.append(self.handles[handle], [], mark, None, self.clock.now())

    @rule(handle=st.integers(0, 1), back=st.integers(1, 10))
    def retry(self, handle: int, back: int) -> None:
        if back <= self.sequence:
            self.model.append(
                self.handles[handle], [Row(-1, None, NOW)], NEVER, Sender("p", 0, self.sequence - back), self.clock.now()
            )

    @rule(handle=st.integers(0, 1), eager=st.booleans())
    def clean(self, handle: int, eager: bool) -> None:
        self.model.cleaned(self.clock.now())
        self.model.tombstones_over()
        done = self.handles[handle].clean(eager=eager)
        assert [one.partition for one in done] == [0]
        assert done[0].rows <= done[0].rows_before
        found = self.model.check(self.opened())
        assert done[0].rows == len(found)

    @rule(by=st.integers(-5, 50))
    def turn_the_clock(self, by: int) -> None:
        self.clock.set(self.clock.now() + by * SECOND)

    @rule(handle=st.integers(0, 1))
    def reopen(self, handle: int) -> None:
        self.handles[handle] = self.opened()

    @rule(seed=st.integers(0, 2**32))
    def lose_power(self, seed: int) -> None:
        image = self.storage.crash(random.Random(seed))
        self.storage = FaultyStorage({path: bytes(content) for path, content in image.files.items()})
        self.handles = [self.opened(), self.opened()]

    @rule(handle=st.integers(0, 1), start=st.integers(0, 30), length=st.integers(0, 30))
    def read_a_range(self, handle: int, start: int, length: int) -> None:
        topic, end = self.handles[handle], self.handles[handle].ends()[0]
        if start < end.first:
            with pytest.raises(OffsetGone, match=f"offsets {start} to {end.first - 1} were removed"):
                topic.read(0, start)
            with pytest.raises(OffsetGone):
                topic.frames(0, start)
            return
        inside = [o for chunk in topic.read(0, start, start + length) for o in chunk.offsets if start <= o < start + length]
        assert inside == [o for chunk in topic.read(0, end.first) for o in chunk.offsets if start <= o < start + length]

    @rule(handle=st.integers(0, 1), since=TIMES)
    def find_a_time(self, handle: int, since: int) -> None:
        topic = self.handles[handle]
        frames = [f for f in topic.frames(0, topic.ends()[0].first) if f.count and f.greatest >= since]
        assert topic.reaching(0, since) == (frames[0].base if frames else None)

    @invariant()
    def both_agree(self) -> None:
        for handle in getattr(self, "handles", []):
            self.model.check(handle)
            if self.sequence:
                assert handle.senders(0)["p"].sequence == self.sequence - 1


TestCleaningMachine = CleaningMachine.TestCase
TestCleaningMachine.settings = settings(max_examples=80, stateful_step_count=30, deadline=None, print_blob=True)
