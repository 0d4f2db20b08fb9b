"""What every log must pass of deletes. A part of `LogContract`."""

import pyarrow as pa
import pytest

from penstock.core.arrow import batch_of
from penstock.core.change import Op
from penstock.core.columns import EVENT_TIME, KEY, OP
from penstock.core.schema import TIMESTAMP, Schema
from penstock.core.time import NEVER, FixedClock
from penstock.errors import BadRow, BadSchema
from penstock.log.port import Log, Topic, TopicSpec
from penstock.testing.contracts.log.samples import NOW, RAW, SECOND, frames_of, raw, rows_of, times_of, typed, values

STRICT = Schema.of("id long not null, text string not null, at timestamp not null")


def deletes(ids: list[int | None], ops: list[int | None], at: list[int | None] | None = None) -> pa.RecordBatch:
    """Rows of which only the key is known."""
    times = pa.array(at or [None] * len(ids), TIMESTAMP)
    texts = pa.nulls(len(ids), pa.string())
    return batch_of({"id": pa.array(ids, pa.int64()), "text": texts, "at": times, OP: pa.array(ops, pa.int8())})


class DeleteContract:
    """A record may say that a row is gone."""

    @pytest.fixture
    def strict(self, log: Log) -> Topic:
        return log.create(TopicSpec("strict", schema=STRICT, time="at", key="id"))

    def test_a_delete_needs_no_more_than_its_key_whatever_the_schema_says(self, strict: Topic) -> None:
        strict.append(0, typed([1, 2]))
        strict.append(0, deletes([1, 2], [Op.DELETE, Op.DELETE]))
        strict.append(0, typed([3]))
        assert values(strict, "id") == [1, 2, 1, 2, 3]
        assert values(strict, "text") == ["row 1", "row 2", None, None, "row 3"]
        assert [row.get(OP) for row in rows_of(strict)] == [None, None, Op.DELETE, Op.DELETE, None]
        if strict.headers:
            first, _, third = strict.read(0)
            assert OP not in first.rows.schema.names
            assert OP not in third.rows.schema.names

    def test_what_is_put_in_beside_a_delete_is_whole(self, strict: Topic) -> None:
        with pytest.raises(BadRow, match=r"row 1 .* no value in column 'text'"):
            strict.append(0, deletes([1, 2], [Op.DELETE, None], [NOW, NOW]))
        with pytest.raises(BadRow, match="no value in column 'text'"):
            strict.append(0, deletes([1], [Op.INSERT], [NOW]))
        assert strict.ends()[0].next == 0

    def test_a_column_of_nulls_says_nothing_and_is_left_out(self, strict: Topic) -> None:
        strict.append(0, typed([1], **{OP: pa.nulls(1, pa.int8())}))
        assert OP not in next(iter(strict.read(0))).rows.schema.names

    def test_a_row_is_put_in_or_taken_out_and_nothing_else(self, strict: Topic) -> None:
        with pytest.raises(BadRow, match="neither an insert nor a delete"):
            strict.append(0, deletes([1], [Op.UPDATE_BEFORE]))

    def test_a_delete_without_a_time_happens_when_the_log_takes_it(self, strict: Topic, clock: FixedClock) -> None:
        strict.append(0, typed([1], NOW - 5 * SECOND))
        clock.set(NOW + SECOND)
        strict.append(0, deletes([1, 2], [Op.DELETE, Op.DELETE], [None, NOW - 9 * SECOND]))
        assert times_of(strict)[1:] == [NOW + SECOND, NOW - 9 * SECOND]
        frame = frames_of(strict)[-1]
        assert (frame.least, frame.greatest, frame.plausible) == (NOW - 9 * SECOND, NOW + SECOND, NOW + SECOND)
        if strict.headers:
            assert strict.ends()[0].time == NOW + SECOND

    def test_only_deletes_without_time_have_the_append_time_alone(self, strict: Topic) -> None:
        strict.append(0, deletes([1], [Op.DELETE]))
        frame = frames_of(strict)[0]
        assert (frame.least, frame.greatest, frame.plausible, frame.time_before) == (NOW, NOW, NOW, NEVER)

    def test_in_a_raw_topic_a_record_without_value_is_a_delete_of_its_key(self, log: Log) -> None:
        topic = log.create(RAW)
        system: dict[str, pa.Array] = {KEY: pa.array([b"1", b"1", None], pa.binary())}
        system[EVENT_TIME] = pa.array([NOW, None, NOW], TIMESTAMP)
        topic.append(0, raw([b"{}", None, b"{}"], **system))
        assert values(topic, "value") == [b"{}", None, b"{}"]
        assert values(topic, KEY) == [b"1", b"1", None]
        with pytest.raises(BadSchema, match="raw"):
            topic.append(0, raw([b"{}"], **{OP: pa.array([Op.DELETE], pa.int8())}))
        with pytest.raises(BadRow, match="no value in column"):
            topic.append(0, raw([b"{}"], **{EVENT_TIME: pa.nulls(1, TIMESTAMP)}))

    def test_deletes_are_read_by_column_and_across_a_new_column(self, log: Log, strict: Topic) -> None:
        strict.append(0, deletes([1], [Op.DELETE]))
        wider = log.evolve("strict", Schema.of("id long not null, text string not null, at timestamp not null, more string"))
        wider.append(0, deletes([2], [Op.DELETE]))
        wanted = [{"id": 1, "more": None, OP: Op.DELETE}, {"id": 2, "more": None, OP: Op.DELETE}]
        assert rows_of(wider, columns=["id", "more"]) == wanted
