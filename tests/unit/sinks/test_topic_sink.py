"""What a flow's topic holds after its epochs."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from penstock.core.change import Op
from penstock.core.columns import OP, POSITION, TIME, WATERMARK
from penstock.core.hashing import partition_of
from penstock.core.schema import TIMESTAMP, Schema
from penstock.core.time import FOREVER, NEVER
from penstock.errors import BadFlow, Mismatch, SinkError
from penstock.log.memory import MemoryLog
from penstock.log.port import Sender, TopicSpec
from penstock.sinks.port import Delivery, Marker, SinkSpec, nothing
from penstock.sinks.topic import LOOKED, TopicSink
from penstock.sinks.topic_owner import sequence_of
from penstock.storage.memory import MemoryStorage
from penstock.testing.contracts.sink import ipc_file

SPEC = SinkSpec("shop", "settled", Schema.of("id long, at timestamp"), ())


class Writer:
    spec = SPEC

    def __init__(
        self,
        log: MemoryLog | None = None,
        partitions: int = 1,
        key: tuple[str, ...] = ("id",),
        generation: int = 1,
        fail: Any = nothing,
    ) -> None:
        self.log, self.storage, self.generation = log or MemoryLog(), MemoryStorage(), generation
        self.sink = TopicSink(self.spec, self.log, "settled", partitions, key, self.storage, fail)
        self.last = self.sink.open("life", generation)

    def epoch_of(self, epoch: int, *rows: Sequence[Any], frontier: int = NEVER) -> None:
        """Rows are (id, at, time, watermark, position)."""
        fields = [*SPEC.schema, pa.field(TIME, pa.int64()), pa.field(WATERMARK, pa.int64()), pa.field(POSITION, pa.binary())]
        columns = {f.name: pa.array([row[i] for row in rows], f.type) for i, f in enumerate(fields)}
        self.storage.publish(f"{epoch}.arrow", ipc_file(pa.table(columns)))
        self.sink.deliver(Delivery(Marker("life", self.generation, epoch), [f"{epoch}.arrow"], frontier))

    def rows(self, partition: int = 0) -> list[dict[str, Any]]:
        return [row for chunk in self.log.topic("settled").read(partition) for row in chunk.rows.to_pylist()]


def test_rows_are_ordered_by_time_and_position_and_bring_both_along() -> None:
    writer = Writer()
    writer.epoch_of(0, (2, 9, 20, NEVER, b"b"), (3, 9, 20, 7, b"a"), (1, 9, 10, NEVER, b"z"))
    rows = writer.rows()
    assert [row["id"] for row in rows] == [1, 3, 2]
    assert [row["__pos"] for row in rows] == [b"z", b"a", b"b"]
    assert [row["__time"].timestamp() for row in rows] == [10e-6, 20e-6, 20e-6]
    assert [row["__w"] for row in rows] == [None, 7, None]
    assert [row["__key"] for row in rows] == [b"1", b"3", b"2"]


def test_the_frontier_stands_as_a_mark_behind_the_rows_of_every_partition() -> None:
    writer = Writer(partitions=3)
    writer.epoch_of(0, (1, 9, 10, NEVER, b"a"), frontier=100)
    assert {end.mark for end in writer.log.topic("settled").ends().values()} == {100}


def test_a_mark_is_written_only_when_it_grew() -> None:
    writer = Writer(partitions=2)
    writer.epoch_of(0, frontier=100)
    before = [len(writer.log.topic("settled").frames(p)) for p in range(2)]
    writer.epoch_of(1, frontier=100)
    assert [len(writer.log.topic("settled").frames(p)) for p in range(2)] == before
    writer.epoch_of(2, frontier=FOREVER)
    assert writer.log.topic("settled").ends()[0].mark == FOREVER


def test_rows_go_to_the_partition_of_kafkas_hash_of_their_key() -> None:
    writer = Writer(partitions=3)
    writer.epoch_of(0, *((i, 9, i, NEVER, b"%03d" % i) for i in range(50)))
    for partition in range(3):
        ids = [row["id"] for row in writer.rows(partition)]
        assert ids == [i for i in range(50) if partition_of(str(i).encode(), 3) == partition]
        assert ids


def test_several_key_columns_are_a_json_array_and_times_end_in_z() -> None:
    writer = Writer(key=("id", "at"))
    writer.epoch_of(0, (1, 1_000_000, 10, NEVER, b"a"))
    assert writer.rows()[0]["__key"] == b'[1,"1970-01-01T00:00:01Z"]'


def test_without_a_key_all_rows_go_to_partition_0() -> None:
    writer = Writer(partitions=2, key=())
    writer.epoch_of(0, (1, 9, 10, NEVER, b"a"), (2, 9, 11, NEVER, b"b"))
    assert len(writer.rows(0)) == 2
    assert "__key" not in writer.rows(0)[0]


def test_the_last_epoch_is_known_although_not_every_partition_has_rows() -> None:
    writer = Writer(partitions=4)
    for epoch in range(20):
        writer.epoch_of(epoch, (1, 9, epoch, NEVER, b"%03d" % epoch), frontier=epoch)
    assert Writer(writer.log, partitions=4, generation=2).last == 19


def test_the_last_epoch_is_known_without_marks_and_without_rows_in_the_last_partition() -> None:
    writer = Writer(partitions=4)
    lone = next(i for i in range(100) if partition_of(str(i).encode(), 4) == 0)
    for epoch in range(3):
        writer.epoch_of(epoch, (lone, 9, epoch, NEVER, b"%03d" % epoch))
    again = Writer(writer.log, partitions=4, generation=2)
    assert again.last == 2
    again.epoch_of(2, (lone, 9, 2, NEVER, b"002"))
    assert len(again.rows()) == 3


def test_the_first_epoch_leaves_its_trace_though_it_has_no_rows() -> None:
    writer = Writer(partitions=2)
    for epoch in range(3):
        writer.epoch_of(epoch)
    assert Writer(writer.log, partitions=2, generation=2).last == 0
    assert writer.rows(0) + writer.rows(1) == []


def test_the_last_epoch_is_found_behind_many_frames_of_others() -> None:
    writer = Writer()
    writer.epoch_of(0, (1, 9, 10, NEVER, b"a"), frontier=1)
    topic = writer.log.topic("settled")
    row = next(iter(topic.read(0))).rows
    for _ in range(200):
        topic.append(0, row)
    assert Writer(writer.log, generation=2).last == 0


def test_an_older_driver_is_refused_by_the_log_from_the_moment_a_newer_one_opens() -> None:
    old = Writer(partitions=2)
    old.epoch_of(0, (1, 9, 10, NEVER, b"a"))
    Writer(old.log, partitions=2, generation=2)
    with pytest.raises(Mismatch, match="later start"):
        old.epoch_of(1, (2, 9, 10, NEVER, b"b"))
    assert len(old.rows(0) + old.rows(1)) == 1


@pytest.mark.parametrize("written", [0, 1])
def test_a_frame_of_an_older_driver_that_comes_between_the_look_and_the_fence_of_a_newer_one_is_there_once(
    written: int,
) -> None:
    old = Writer(partitions=2)
    rows = [(i, 9, 10 * i, NEVER, b"%d" % i) for i in range(8)]
    for epoch in range(written):
        old.epoch_of(epoch, *rows[:3])
    looked = list[str]()

    def between(point: str) -> None:
        if point == LOOKED and not looked:
            looked.append(point)
            old.epoch_of(written, *rows[3:])

    new = Writer(old.log, partitions=2, generation=2, fail=between)
    assert looked
    assert new.last == written
    new.epoch_of(written, *rows[3:])
    ids = sorted(row["id"] for partition in range(2) for row in new.rows(partition))
    assert ids == [row[0] for row in rows[0 if written else 3 :]]


def test_frames_are_stamped_with_flow_sink_incarnation_generation_and_epoch() -> None:
    writer = Writer(generation=4)
    writer.epoch_of(6, (1, 9, 10, NEVER, b"a"))
    sender = writer.log.topic("settled").frames(0)[-1].sender
    assert sender is not None
    assert (sender.id, sender.epoch, sender.sequence) == ("shop/settled/life", 4, sequence_of(6))


@pytest.mark.parametrize(
    ("there", "reason"),
    [
        (TopicSpec("settled", 1, SPEC.schema), "producers"),
        (TopicSpec("settled", 1, SPEC.schema, writer="bank"), "bank"),
        (TopicSpec("settled", 2, SPEC.schema, writer="shop"), "2 partitions"),
        (TopicSpec("settled", 1, Schema.of("id string"), writer="shop"), "another schema"),
    ],
)
def test_a_topic_of_another_writer_or_shape_is_a_mismatch(there: TopicSpec, reason: str) -> None:
    log = MemoryLog()
    sender = Sender(f"{there.writer}/settled/life", 1, sequence_of(0), gaps=True)
    log.create(there).append(0, None, mark=5, sender=sender if there.writer else None)
    with pytest.raises(Mismatch, match=reason):
        Writer(log)


def test_a_topic_that_took_no_epoch_is_made_anew_for_another_shape() -> None:
    log = Changelog(partitions=2).log
    Writer(log).epoch_of(0, (1, 9, 10, NEVER, b"a"))
    assert (log.topic("settled").spec.partitions, log.topic("settled").spec.changelog) == (1, False)


def test_a_topic_gains_nullable_columns() -> None:
    log = MemoryLog()
    log.create(TopicSpec("settled", 1, Schema.of("id long"), writer="shop"))
    writer = Writer(log)
    writer.epoch_of(0, (1, 9, 10, NEVER, b"a"))
    assert log.topic("settled").spec.schema == SPEC.schema


def changes(*rows: tuple[int, int | None, int, bytes, Op]) -> pa.Table:
    """Rows are (id, at, time, position, op)."""
    types = {"id": pa.int64(), "at": TIMESTAMP, TIME: pa.int64(), POSITION: pa.binary(), OP: pa.int8()}
    return pa.table({name: pa.array([row[i] for row in rows], t) for i, (name, t) in enumerate(types.items())})


class Changelog(Writer):
    """Writes rows that change."""

    spec = SinkSpec("shop", "settled", SPEC.schema, (), updating=True)

    def changed(self, epoch: int, *rows: tuple[int, int | None, int, bytes, Op]) -> None:
        self.storage.publish(f"{epoch}.arrow", ipc_file(changes(*rows)))
        self.sink.deliver(Delivery(Marker("life", self.generation, epoch), [f"{epoch}.arrow"], NEVER))

    def told(self, partition: int = 0) -> list[tuple[Any, ...]]:
        """Id, at in microseconds, and whether it is a delete."""
        return [
            (row["id"], row["at"] and round(row["at"].timestamp() * 1e6), row.get("__op") == Op.DELETE)
            for row in self.rows(partition)
        ]


def test_rows_that_change_make_a_changelog_by_their_key() -> None:
    writer = Changelog(key=("id", "at"))
    spec = writer.log.topic("settled").spec
    assert (spec.changelog, spec.key, spec.writer) == (True, "id,at", "shop")


def test_of_each_key_one_net_change_is_written_and_what_was_before_an_update_is_not() -> None:
    writer = Changelog()
    writer.changed(0, (1, 5, 10, b"a", Op.INSERT), (2, 5, 10, b"b", Op.INSERT), (3, 5, 10, b"c", Op.INSERT))
    writer.changed(
        1,
        (1, 5, 10, b"a", Op.UPDATE_BEFORE),
        (1, 6, 11, b"d", Op.UPDATE_AFTER),
        (2, 5, 10, b"b", Op.DELETE),
        (3, 5, 10, b"c", Op.UPDATE_BEFORE),  # its other half was filtered away
    )
    assert writer.told() == [(1, 5, False), (2, 5, False), (3, 5, False), (2, None, True), (3, None, True), (1, 6, False)]


def test_a_row_taken_out_here_and_put_in_there_is_put_in() -> None:
    """It moved from one bucket to another, and either says its half."""
    writer = Changelog()
    writer.changed(0, (1, 6, 4, b"z", Op.INSERT), (1, 5, 10, b"a", Op.DELETE))
    assert writer.told() == [(1, 6, False)]


def test_a_delete_of_a_column_that_must_not_be_null_is_stored() -> None:
    log, storage = MemoryLog(), MemoryStorage()
    spec = SinkSpec("shop", "settled", Schema.of("id long not null, at timestamp not null"), (), updating=True)
    sink = TopicSink(spec, log, "settled", 2, ("id",), storage)
    sink.open("life", 1)
    storage.publish("0.arrow", ipc_file(changes((1, 5, 10, b"a", Op.DELETE), (2, 5, 10, b"b", Op.INSERT))))
    sink.deliver(Delivery(Marker("life", 1, 0), ["0.arrow"], NEVER))
    rows = [row for p in range(2) for chunk in log.topic("settled").read(p) for row in chunk.rows.to_pylist()]
    assert sorted((row["id"], row["at"] is None, row.get("__op")) for row in rows) == [(1, True, Op.DELETE), (2, False, None)]


def test_rows_that_change_need_a_key() -> None:
    with pytest.raises(BadFlow, match="they have no key"):
        Changelog(key=())


def test_a_changelog_stays_one_and_a_topic_of_rows_that_stay_becomes_none() -> None:
    with pytest.raises(Mismatch, match="holds rows that change, by id; flow 'shop' now writes rows that stay"):
        Writer(written(Changelog()))
    with pytest.raises(Mismatch, match="holds rows that stay; flow 'shop' now writes rows that change, by id"):
        Changelog(written(Writer()))
    with pytest.raises(Mismatch, match="by id; flow 'shop' now writes rows that change, by id,at"):
        Changelog(written(Changelog()), key=("id", "at"))


def written(writer: Writer) -> MemoryLog:
    writer.sink.deliver(Delivery(Marker("life", 1, 0), (), 5))
    return writer.log


def test_a_row_the_log_refuses_is_a_sink_error() -> None:
    log = MemoryLog()
    log.create(TopicSpec("settled", 1, SPEC.schema, writer="shop", max_record=8))
    writer = Writer(log)
    with pytest.raises(SinkError, match="epoch 0"):
        writer.epoch_of(0, (1, 9, 10, NEVER, b"a" * 100))
    assert writer.rows() == []


def test_a_sink_that_was_not_opened_says_so() -> None:
    with pytest.raises(SinkError, match="not open"):
        TopicSink(SPEC, MemoryLog(), "settled", 1, (), MemoryStorage()).deliver(Delivery(Marker("life", 1, 0), (), 0))
