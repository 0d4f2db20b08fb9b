"""What is wrong with a store is named: rows that no judge would have let in."""

import pytest

from penstock.events.event import NewEvent
from penstock.events.on_log.rows import Row, encode, topic_spec
from penstock.events.on_log.streams import LogStreams
from penstock.events.on_log.verifying import verify
from penstock.log.intake.checked import RowCheck
from penstock.log.memory import MemoryLog

NOW = 1_700_000_000_000_000


def row(stream: str, version: int, id: str, at: int = NOW) -> Row:
    return Row(stream, version, at, NewEvent("Added", 1, "{}", id, None))


def found_in(*rows: Row, partition: int = 0, partitions: int = 1) -> list[str]:
    topic = MemoryLog().create(topic_spec("carts", partitions))
    topic.append_judged(partition, lambda end, since: encode(rows, RowCheck(topic.spec)))
    return verify(LogStreams(topic)).wrong


def test_a_sound_store_has_no_findings() -> None:
    assert found_in(row("a", 1, "x"), row("b", 1, "x"), row("a", 2, "y")) == []


@pytest.mark.parametrize(
    ("rows", "finding"),
    [
        ((row("a", 1, "x"), row("a", 3, "y")), "carts/0@1: version 3 of stream 'a' follows version 1"),
        ((row("a", 1, "x"), row("a", 1, "y")), "carts/0@1: version 1 of stream 'a' follows version 1"),
        ((row("a", 2, "x"),), "carts/0@0: version 2 of stream 'a' is its first"),
        ((row("a", 1, "x"), row("a", 2, "x")), "carts/0@1: id 'x' of stream 'a' is that of version 1, too"),
        ((row("a", 1, "x"), row("a", 2, "y", NOW - 1)), "carts/0@1: version 2 of stream 'a' happened before version 1"),
    ],
)
def test_what_is_wrong_is_named(rows: tuple[Row, ...], finding: str) -> None:
    assert finding in found_in(*rows)


def test_a_stream_in_a_partition_that_is_not_its_own_is_named() -> None:
    wrong = [found_in(row("a", 1, "x"), partition=number, partitions=2) for number in (0, 1)]
    assert sorted(map(len, wrong)) == [0, 1]
    assert "belongs in partition" in max(wrong)[0]
