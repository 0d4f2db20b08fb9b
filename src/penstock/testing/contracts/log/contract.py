"""What every log must pass. Subclass `LogContract`, say how your log is made, run pytest.

class TestMyLog(LogContract):
    def make(self, place, clock):
        return MyLog(place / "log", clock)
"""

from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.core.arrow import batch_of
from penstock.core.columns import APPENDED, EVENT_TIME, HEADERS, KEY, OFFSET, POSITION, WATERMARK
from penstock.core.schema import TIMESTAMP, Schema
from penstock.core.time import FOREVER, LAST, NEVER, FixedClock
from penstock.errors import AlreadyThere, BadInput, BadName, BadRow, BadSchema, BadTime, NotFound
from penstock.log.port import Appended, Log, Topic, TopicSpec
from penstock.testing.contracts.log.deletes import DeleteContract
from penstock.testing.contracts.log.samples import (
    DAY,
    NOW,
    RAW,
    SCHEMA,
    SECOND,
    TYPED,
    frames_of,
    raw,
    rows_of,
    times_of,
    typed,
    values,
)
from penstock.testing.contracts.log.senders import SenderContract
from penstock.testing.contracts.log.watching import WatchContract


class LogContract(SenderContract, DeleteContract, WatchContract, ABC):
    """The promises of `penstock.log.port`, each as a test.

    An adapter says what its broker cannot do, and the tests then hold it to what is left: `dense = False` where offsets have gaps.
    What cannot be known without reading rows (`Topic.headers`) is looked for in what was read."""

    dense = True  # offsets follow each other: rows take one each, marks none

    @abstractmethod
    def make(self, place: Path, clock: FixedClock) -> Log:
        """An empty log that takes its append times from the clock."""

    @pytest.fixture
    def clock(self) -> FixedClock:
        return FixedClock(NOW)

    @pytest.fixture
    def log(self, tmp_path: Path, clock: FixedClock) -> Log:
        return self.make(tmp_path, clock)

    @pytest.fixture
    def topic(self, log: Log) -> Topic:
        return log.create(TYPED)

    # Topics

    def test_a_topic_has_the_settings_it_was_made_with(self, log: Log) -> None:
        spec = TopicSpec("t", 3, SCHEMA, "at", "id", "id % 3", "os", max_record=1000, writer="flow/sink", changelog=True)
        spec = replace(spec, capture="shop")
        log.create(spec)
        assert log.topic("t").spec == spec
        assert log.topics() == ["t"]

    def test_a_topic_is_made_once(self, log: Log, topic: Topic) -> None:
        with pytest.raises(AlreadyThere, match="there is a topic orders already"):
            log.create(TYPED)
        with pytest.raises(AlreadyThere, match="differ in case alone"):
            log.create(TopicSpec("Orders"))
        assert log.topics() == ["orders"]

    def test_an_unknown_topic_is_not_found_and_close_names_are_said(self, log: Log, topic: Topic) -> None:
        with pytest.raises(NotFound, match="did you mean orders"):
            log.topic("ordesr")
        with pytest.raises(NotFound):
            log.topic("ORDERS")
        with pytest.raises(NotFound):
            log.delete("ordesr")

    @pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a\0b", "%2e%2e", "x" * 300, "dot.", ".dot", "ü", "a b"])
    def test_a_name_outside_the_allow_list_is_refused_everywhere(self, log: Log, name: str) -> None:
        for act in (lambda: log.create(TopicSpec(name)), lambda: log.topic(name), lambda: log.delete(name)):
            with pytest.raises(BadName):
                act()
        assert log.topics() == []

    def test_settings_that_cannot_be_are_refused(self, log: Log) -> None:
        for spec in (TopicSpec("t", 0), TopicSpec("t", durability="never"), TopicSpec("t", max_record=0)):  # type: ignore[arg-type]
            with pytest.raises(BadInput):
                log.create(spec)
        for time in ("nothing", "text"):
            with pytest.raises(BadSchema):
                log.create(TopicSpec("t", schema=SCHEMA, time=time))

    def test_delete_and_create_gives_another_topic(self, log: Log, topic: Topic) -> None:
        topic.append(0, typed([1, 2]))
        old = topic.id
        log.delete("orders")
        assert log.topics() == []
        with pytest.raises(NotFound):
            log.topic("orders")
        again = log.create(TYPED)
        assert again.id != old
        assert again.ends()[0].next == 0
        with pytest.raises(NotFound, match="was deleted"):
            topic.append(0, typed([3]))
        with pytest.raises(NotFound, match="was deleted"):
            topic.ends()
        assert list(again.read(0)) == []

    def test_a_partition_that_is_not_there_is_not_found(self, topic: Topic) -> None:
        for partition in (-1, 1):
            with pytest.raises(NotFound, match="has no partition"):
                topic.append(partition, typed([1]))
            with pytest.raises(NotFound, match="has no partition"):
                topic.read(partition)

    # Rows

    def test_rows_come_back_as_they_went_in(self, topic: Topic) -> None:
        assert topic.append(0, typed([1, 2, 3])) == Appended(0, 3, False)
        second = topic.append(0, typed([4]))
        assert second == Appended(3 if self.dense else second.base, 1, False)
        assert values(topic, "id") == [1, 2, 3, 4]
        assert values(topic, "text") == ["row 1", "row 2", "row 3", "row 4"]
        assert rows_of(topic) == typed([1, 2, 3]).to_pylist() + typed([4]).to_pylist()
        assert {c.rows.schema.field("at").type for c in topic.read(0)} == {TIMESTAMP}
        assert [int(c.offsets[-1]) for c in topic.read(0)][-1] == second.base
        if topic.headers:
            [first, last] = topic.read(0)
            assert first.rows.equals(typed([1, 2, 3]))
            assert last.frame.base == 3

    def test_partitions_are_apart(self, log: Log) -> None:
        topic = log.create(TopicSpec("t", 3, SCHEMA, "at"))
        topic.append(2, typed([1]))
        topic.append(0, typed([2, 3]))
        assert [values(topic, "id", p) for p in range(3)] == [[2, 3], [], [1]]
        assert {p: e.next for p, e in topic.ends().items()} == {0: 2 if self.dense else topic.ends()[0].next, 1: 0, 2: 1}

    def test_the_frames_that_hold_a_range_are_read_whole(self, topic: Topic) -> None:
        bases = [topic.append(0, typed([start, start + 1, start + 2])).base for start in range(0, 9, 3)]
        at = [base + n for base in bases for n in range(3)]
        assert values(topic, "id", start=at[3]) == [3, 4, 5, 6, 7, 8]
        assert values(topic, "id", start=at[4], stop=at[5]) == ([3, 4, 5] if topic.headers else [4])
        assert values(topic, "id", stop=at[3]) == [0, 1, 2]
        assert values(topic, "id", start=at[2], stop=at[7]) == (list(range(9)) if topic.headers else list(range(2, 7)))
        assert values(topic, "id", start=at[8] + 1) == values(topic, "id", start=100) == values(topic, "id", start=3, stop=3) == []

    def test_only_the_columns_asked_for_are_read_and_the_system_columns(self, topic: Topic) -> None:
        topic.append(0, typed([1], **{KEY: pa.array([b"k"])}))
        [chunk] = topic.read(0, columns=["text"])
        assert chunk.rows.schema.names == ["text", KEY]
        with pytest.raises(NotFound, match="has no column 'nothing'"):
            topic.read(0, columns=["nothing"])

    def test_keys_headers_and_times_travel_with_raw_records(self, log: Log) -> None:
        topic = log.create(RAW)
        headers = pa.array([[("a", b"1"), ("b", b"\0")], None], pa.map_(pa.string(), pa.binary()))
        system = {KEY: pa.array([None, b"\0k"], pa.binary()), HEADERS: headers, EVENT_TIME: pa.array([NOW - 5, NOW - 9], TIMESTAMP)}
        given = raw([b"\xff\0", b""], **system)
        topic.append(0, given)
        [chunk] = topic.read(0)
        assert chunk.rows.equals(given)
        assert (chunk.frame.least, chunk.frame.greatest) == (NOW - 9, NOW - 5)

    def test_a_system_column_that_says_nothing_is_left_out(self, topic: Topic) -> None:
        topic.append(0, typed([1], **{KEY: pa.array([None], pa.binary())}))
        [chunk] = topic.read(0)
        assert chunk.rows.schema.names == ["id", "text", "at"]

    def test_a_missing_nullable_column_is_null(self, topic: Topic) -> None:
        topic.append(0, typed([1]).select(["at", "id"]))
        assert [c.rows.to_pylist()[0]["text"] for c in topic.read(0)] == [None]
        assert next(topic.read(0)).rows.schema.names == ["id", "text", "at"]

    def test_a_slice_of_a_batch_is_stored_as_the_slice(self, topic: Topic) -> None:
        topic.append(0, typed(list(range(100))).slice(40, 3))
        assert values(topic, "id") == [40, 41, 42]

    @pytest.mark.parametrize("text", ["", "\0", "🦆", "a" * 65536, "\u202e", "ß" * 100])
    def test_any_text_is_kept_exactly(self, log: Log, text: str) -> None:
        topic = log.create(TopicSpec("t", schema=Schema.of("text string, data binary")))
        topic.append(0, batch_of({"text": pa.array([text]), "data": pa.array([text.encode()])}))
        assert values(topic, "text") == [text]
        assert values(topic, "data") == [text.encode()]

    def test_nested_columns_come_back(self, log: Log) -> None:
        schema = Schema.of("a array<long>, m map<string,double>, s struct<x:int,y:array<string>>, d decimal(10,2)")
        topic = log.create(TopicSpec("t", schema=schema))
        rows: list[dict[str, object]] = [
            {"a": [1, None], "m": [("k", 1.5)], "s": {"x": 1, "y": ["z"]}, "d": None},
            {"a": None, "m": [], "s": None, "d": None},
        ]
        topic.append(0, pa.RecordBatch.from_pylist(rows, schema=schema.arrow))
        assert next(topic.read(0)).rows.to_pylist() == rows

    # What is refused

    def test_rows_that_do_not_fit_are_refused_and_nothing_is_stored(self, topic: Topic) -> None:
        wrong_type = typed([1]).set_column(0, "id", pa.array(["one"]))
        unknown = typed([1], other=pa.array([1]))
        twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([1])], ["id", "id"])
        no_time = typed([1, 2]).set_column(2, "at", pa.array([NOW, None], TIMESTAMP))
        for batch in (wrong_type, unknown, twice, no_time, typed([1]).select(["id"])):
            with pytest.raises((BadRow, BadSchema)):
                topic.append(0, batch)
        assert topic.ends()[0].next == 0

    def test_a_column_that_must_not_be_null_is_held_to_it(self, log: Log) -> None:
        topic = log.create(TopicSpec("t", schema=Schema.of("a long not null, b long")))
        topic.append(0, pa.record_batch({"a": pa.array([1])}))
        for batch in (pa.record_batch({"b": pa.array([1])}), pa.record_batch({"a": pa.array([1, None])})):
            with pytest.raises(BadRow, match="column 'a'"):
                topic.append(0, batch)

    def test_columns_of_flows_are_refused_where_no_flow_writes(self, topic: Topic) -> None:
        for more in ({POSITION: pa.array([b"x"])}, {WATERMARK: pa.array([1])}, {EVENT_TIME: pa.array([NOW], TIMESTAMP)}):
            with pytest.raises(BadSchema):
                topic.append(0, typed([1], **more))

    def test_offsets_and_append_times_are_the_logs_own(self, topic: Topic) -> None:
        for more in ({OFFSET: pa.array([7])}, {APPENDED: pa.array([NOW])}):
            with pytest.raises(BadSchema, match="the log's own"):
                topic.append(0, typed([1], **more))
        assert topic.ends()[0].next == 0

    def test_a_chunk_tells_offset_and_append_time_of_every_row(self, topic: Topic, clock: FixedClock) -> None:
        topic.append(0, typed([1, 2]))
        clock.set(NOW + SECOND)
        last = topic.append(0, typed([3])).base
        chunks = list(topic.read(0))
        assert [offset for c in chunks for offset in c.offsets.tolist()] == [0, 1, 2 if self.dense else last]
        assert [time for c in chunks for time in c.appended.tolist()] == [NOW, NOW, NOW + SECOND]

    def test_a_topic_written_by_a_flow_takes_time_position_and_watermark(self, log: Log) -> None:
        topic = log.create(TopicSpec("t", schema=Schema.of("n long"), writer="flow"))
        system: dict[str, pa.Array] = {
            EVENT_TIME: pa.array([5], TIMESTAMP),
            POSITION: pa.array([b"x"]),
            WATERMARK: pa.array([None], pa.int64()),
        }
        given = batch_of({"n": pa.array([1]), **system})
        topic.append(0, given)
        assert next(topic.read(0)).rows.equals(given)

    def test_a_record_over_the_limit_is_refused_with_its_size(self, log: Log) -> None:
        topic = log.create(TopicSpec("t", max_record=1000))
        topic.append(0, raw([b"x" * 1000] * 5))
        with pytest.raises(BadRow, match=r"row 1 .* has 1,001 bytes; the limit is 1,000"):
            topic.append(0, raw([b"x", b"x" * 1001]))
        assert values(topic, "value") == [b"x" * 1000] * 5

    def test_a_large_nested_value_counts_too(self, log: Log) -> None:
        topic = log.create(TopicSpec("t", schema=Schema.of("a array<long>"), max_record=1000))
        topic.append(0, pa.record_batch({"a": pa.array([[1] * 20] * 50)}))
        with pytest.raises(BadRow, match="row 1"):
            topic.append(0, pa.record_batch({"a": pa.array([[1], [1] * 200])}))

    def test_an_impossible_time_is_refused(self, topic: Topic) -> None:
        for time in (LAST + 1, -(2**60), 2**62 + 1):
            with pytest.raises(BadRow, match="years 1 to 9999"):
                topic.append(0, typed([1], [time]))

    def test_nothing_to_append_is_refused_and_no_rows_are_no_frame(self, topic: Topic) -> None:
        with pytest.raises(BadInput):
            topic.append(0, None)
        assert topic.append(0, typed([])) == Appended(0, 0, False)
        assert list(topic.frames(0)) == []

    # Time

    def test_append_time_is_the_event_time_where_there_is_no_other(self, log: Log, clock: FixedClock) -> None:
        topic = log.create(RAW)
        topic.append(0, raw([b"x"]))
        clock.set(NOW + SECOND)
        topic.append(0, raw([b"y"]))
        assert times_of(topic) == [NOW, NOW + SECOND]
        frames = frames_of(topic)
        if topic.headers:
            assert [(f.appended, f.least, f.greatest, f.plausible) for f in frames] == [(NOW,) * 4, (NOW + SECOND,) * 4]
        assert (frames[0].least, frames[-1].plausible, frames[-1].appended) == (NOW, NOW + SECOND, NOW + SECOND)

    def test_append_times_never_go_back(self, topic: Topic, clock: FixedClock) -> None:
        topic.append(0, typed([1]))
        clock.set(NOW - DAY)
        topic.append(0, typed([2]))
        assert [time for c in topic.read(0) for time in c.appended.tolist()] == [NOW, NOW]

    def test_headers_tell_the_greatest_time_before_them(self, topic: Topic) -> None:
        for at in (NOW, NOW - 50, NOW + 20):
            topic.append(0, typed([1, 2], [at, at - 5]))
        frames = frames_of(topic)
        assert frames[-1].time_after == NOW + 20
        assert (min(f.least for f in frames), max(f.greatest for f in frames)) == (NOW - 55, NOW + 20)
        if topic.headers:
            assert [f.time_before for f in frames] == [NEVER, NOW, NOW]
            assert [(f.least, f.greatest) for f in frames] == [(NOW - 5, NOW), (NOW - 55, NOW - 50), (NOW + 15, NOW + 20)]
            assert topic.ends()[0].time == NOW + 20

    def test_a_time_far_ahead_moves_nothing(self, topic: Topic) -> None:
        topic.append(0, typed([1, 2, 3], [NOW + 1, NOW + DAY, NOW + DAY + 1]))
        topic.append(0, typed([4], [LAST]))
        frames = frames_of(topic)
        assert (frames[-1].greatest, frames[-1].time_after) == (LAST, NOW + DAY)
        if topic.headers:
            first, second = frames
            assert (first.greatest, first.plausible) == (NOW + DAY + 1, NOW + DAY)
            assert (second.plausible, second.time_before) == (NEVER, NOW + DAY)
            assert topic.ends()[0].time == NOW + DAY

    def test_rows_of_a_flow_are_never_implausible(self, log: Log) -> None:
        topic = log.create(TopicSpec("t", schema=SCHEMA, time="at", writer="flow"))
        topic.append(0, typed([1], [LAST]), mark=LAST)
        [frame] = frames_of(topic)
        assert (frame.plausible, frame.mark) == (LAST, LAST)
        if topic.headers:
            assert topic.ends()[0].time == topic.ends()[0].mark == LAST

    def test_marks_stand_behind_the_rows_of_their_frame(self, topic: Topic) -> None:
        topic.append(0, typed([1]), mark=NOW - 10)
        topic.append(0, None, mark=NOW)
        topic.append(0, None, mark=NOW - 5)
        topic.append(0, typed([2]))
        frames = frames_of(topic)
        assert [(f.count, f.mark) for f in frames] == [(1, NOW - 10), (0, NOW), (0, NOW - 5), (1, NEVER)]
        assert [f.mark_before for f in frames] == [NEVER, NOW - 10, NOW, NOW]
        if self.dense:
            assert [f.base for f in frames] == [0, 1, 1, 1]
        if topic.headers:
            assert topic.ends()[0].mark == NOW
        assert values(topic, "id") == [1, 2]

    def test_a_mark_too_far_ahead_is_refused_but_for_the_end_of_input(self, topic: Topic) -> None:
        with pytest.raises(BadTime, match="beyond the present"):
            topic.append(0, typed([1]), mark=NOW + DAY + 1)
        assert topic.ends()[0].next == 0
        topic.append(0, None, mark=NOW + DAY)
        topic.append(0, None, mark=FOREVER)
        assert [f.mark for f in frames_of(topic)] == [NOW + DAY, FOREVER]
        if topic.headers:
            assert topic.ends()[0].mark == FOREVER

    def test_frames_are_found_by_the_offsets_they_hold_and_marks_by_where_they_stand(self, topic: Topic) -> None:
        for start in range(0, 6, 2):
            topic.append(0, typed([start, start + 1]))
            topic.append(0, None, mark=NOW)
        if not topic.headers:
            end = topic.ends()[0].next
            for start in range(end):
                pieces = topic.frames(0, start, end)
                assert [o for f in pieces for o in range(f.base, f.end)] == list(range(start, end))
                assert {t for f in pieces for t in (f.least, f.greatest, f.plausible, f.mark, f.mark_before)} == {NEVER}
            return
        frames = [(0, 2), (2, 0), (2, 2), (4, 0), (4, 2), (6, 0)]
        assert [(f.base, f.count) for f in topic.frames(0)] == frames
        for start in range(8):
            for stop in range(start, 8):
                held = [(b, n) for b, n in frames if (n and b < stop and b + n > start) or (not n and start <= b <= stop)]
                assert [(f.base, f.count) for f in topic.frames(0, start, stop)] == held

    def test_an_empty_partition_has_an_end(self, topic: Topic) -> None:
        end = topic.ends()[0]
        assert (end.first, end.next, end.appended, end.time, end.mark) == (0, 0, NEVER, NEVER, NEVER)
