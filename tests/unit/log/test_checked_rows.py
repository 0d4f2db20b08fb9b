"""Rows on their way into a topic are checked once: only checks make CheckedRows, and nothing behind them checks again."""

import ast
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock
from penstock.core.columns import KEY, VALUE
from penstock.core.schema import TIMESTAMP, Schema
from penstock.core.time import NEVER
from penstock.errors import BadRow
from penstock.log.file.log import FileLog
from penstock.log.intake.attributes import Given
from penstock.log.intake.checked import CheckedRows, RowCheck
from penstock.log.intake.rows_in import Intake
from penstock.log.memory import MemoryLog
from penstock.log.port import Log, Topic, TopicSpec
from penstock.log.producer import Producer
from penstock.storage.memory import MemoryStorage

ORDERS = TopicSpec("orders", 2, Schema.of("id long not null, text string, at timestamp not null"), time="at", key="id")


def orders(*times: int) -> pa.RecordBatch:
    columns = [pa.array(range(len(times)), pa.int64()), pa.array(["x"] * len(times)), pa.array(times, TIMESTAMP)]
    assert ORDERS.schema
    return pa.RecordBatch.from_arrays(columns, schema=ORDERS.schema.arrow)


@pytest.fixture(params=["memory", "file"])
def topic(request: pytest.FixtureRequest) -> Topic:
    log: Log = MemoryLog() if request.param == "memory" else FileLog(MemoryStorage())
    return log.create(ORDERS)


def checks_during(act: Callable[[], object]) -> list[str]:
    """The functions of intake/ that run meanwhile, by module and name."""
    found: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.parent.name == "intake" and frame.f_code.co_name.isidentifier():
            found.append(f"{path.stem}.{frame.f_code.co_name}")

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
    return found


def test_nobody_makes_checked_rows_but_a_check() -> None:
    rows = RowCheck(ORDERS).checked(orders(1))
    with pytest.raises(TypeError, match="made by checking rows"):
        CheckedRows(ORDERS, rows.batch, 0, None, NEVER, NEVER, False, object())
    with pytest.raises((TypeError, ValueError), match="made_by"):
        replace(rows, batch=orders(1, 2))


def test_only_the_checks_of_the_intake_put_rows_together_without_looking_at_them() -> None:
    source = Path(penstock.__file__).parent
    callers = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "assembled"
    }
    assert callers == {"log/intake/checked.py", "log/intake/rows_in.py"}


def test_a_topic_does_not_check_again_what_its_producer_checked(topic: Topic) -> None:
    producer = Producer(topic)
    producer.send({"id": 1, "text": "x", "at": "2024-01-15T10:30:00Z"})
    checks = checks_during(producer.flush)
    assert (
        checks.count("rows_in._refuse_large")
        == checks.count("attributes.partitions_of")
        == checks.count("attributes.times_of")
        == 1
    )
    behind = checks[checks.index("checked.checked") :]
    assert set(behind) <= {"checked.checked", "checked.num_rows", "sizes.fits"}  # the last: whether to compress the frame
    assert not {"sizes.check_sizes", "fitting.conformed"} & set(checks)


def test_a_topic_checks_a_batch_that_nobody_checked_and_once(topic: Topic) -> None:
    checks = checks_during(lambda: topic.append(0, orders(1, 2).select(["at", "id"])))
    assert checks.count("fitting.conformed") == checks.count("sizes.check_sizes") == 1


def test_rows_checked_under_other_settings_are_checked_again() -> None:
    rows = Intake(TopicSpec("t")).lines([b"x" * 100]).rows
    same, narrow = RowCheck(TopicSpec("t")), RowCheck(TopicSpec("t", max_record=50))
    assert same.checked(rows) is rows
    with pytest.raises(BadRow, match="the limit is 50"):
        narrow.checked(rows)


def test_a_part_of_checked_rows_knows_its_own_times() -> None:
    rows = RowCheck(ORDERS).checked(orders(5, 1, 9))
    part, picked = rows.slice(0, 2), rows.take(np.array([2]))
    assert (rows.least, rows.greatest) == (1, 9)
    assert (part.num_rows, part.least, part.greatest) == (2, 1, 5)
    assert (picked.num_rows, picked.least, picked.greatest) == (1, 9, 9)


def test_a_partition_none_of_whose_rows_has_a_key_gets_no_key_column() -> None:
    given = Given(keys=[b"a", None], partitions=[1, 0])
    parts = {number: rows.batch for number, rows, _ in Intake(TopicSpec("t", 2)).lines([b"x", b"y"], given).by_partition()}
    assert parts[0].schema.names == [VALUE]
    assert parts[1].schema.names == [VALUE, KEY]


def test_a_time_of_the_year_10000_is_refused_before_any_partition_gets_rows() -> None:
    far = pa.record_batch({"id": pa.array([1, 2]), "at": pa.array([1, 1 << 60], TIMESTAMP)})
    topic = MemoryLog().create(ORDERS)
    with pytest.raises(BadRow, match="outside the years 1 to 9999"):
        Producer(topic).send_arrow(far)
    assert [end.next for end in topic.ends().values()] == [0, 0]


def test_a_value_that_two_columns_share_counts_in_both() -> None:
    value = pa.array([b"x" * 600])
    check = RowCheck(TopicSpec("t", schema=Schema.of("a binary, b binary"), max_record=1000))
    with pytest.raises(BadRow, match="the limit is 1,000"):
        check.checked(pa.record_batch({"a": value, "b": value}))


def test_rows_of_a_large_table_are_measured_by_themselves() -> None:
    many = pa.record_batch({VALUE: pa.array([b"x" * 600] * 100, pa.binary())})
    check = RowCheck(TopicSpec("t", max_record=1000))
    assert check.checked(many.slice(50, 1)).num_rows == check.checked(many).num_rows - 99
