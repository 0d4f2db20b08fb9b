"""A table compared with its topic, over a source in memory: every difference is found, by its kind, and nothing else is."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np
import orjson
import polars as pl
import pyarrow as pa
import pytest

from captured import Captured, Write
from penstock.capture.port import Flags, Places, Table, TableFacts
from penstock.capture.reconcile import TableResult, comparing, folding, records
from penstock.capture.reconcile.comparing import TableComparison
from penstock.capture.reconcile.folding import View
from penstock.capture.reconcile.results import silent
from penstock.capture.reconcile.source import Described, Rows
from penstock.capture.writing.envelopes import flat_key
from penstock.capture.writing.journal import CaptureState
from penstock.core.arrow import values_in
from penstock.log.memory import MemoryLog

USERS = ("public", "users")
TOPIC = "shop.public.users"
Row = dict[str, Any]


@dataclass
class MemorySource:
    """Rows in memory, in ranges of three; hidden: transactions that the snapshot does not see."""

    rows: dict[int, Row]
    hidden: set[int] = field(default_factory=set)
    columns: tuple[str, ...] = ("id", "name")
    snapshot = position = database = ""
    time = 0
    believes = True

    def sees(self, xids: Places, lsns: Places) -> Flags:
        return ~np.isin(xids, list(self.hidden))

    def copied(self, state: CaptureState, tables: Sequence[Table]) -> bool:
        return True

    def reached(self, state: CaptureState) -> bool:
        return True

    def describe(self, table: Table) -> Described:
        return Described(self.columns, TableFacts("id long, name string", ("id",)), 0)

    def ranges(self, table: Table) -> Iterator[Rows]:
        found = sorted(self.rows.items())
        for start in range(0, len(found), 3):
            part = found[start : start + 3]
            keys = [orjson.dumps({"id": key}).decode() for key, _ in part]
            yield Rows(pa.array(keys, pa.utf8()), pa.array([orjson.dumps(row).decode() for _, row in part], pa.utf8()))

    def close(self) -> None:
        pass


@dataclass
class Noting:
    """A mender that notes down what it should write."""

    written: dict[str, str | None] = field(default_factory=dict)

    def rows(self, table: Table, keys: pa.Array, rows: pa.Array) -> None:
        self.written |= dict(zip(values_in(keys, str), values_in(rows, str), strict=True))

    def gone(self, table: Table, keys: pa.Array) -> None:
        self.written |= dict.fromkeys(values_in(keys, str))

    def flush(self) -> None:
        pass


def view_of(log: MemoryLog, source: MemorySource, **settings: Any) -> View:
    topic = log.topic(TOPIC)
    ends = [end.next for _, end in sorted(topic.ends().items())]
    return View(TOPIC, topic, ends, source.sees, **settings)


def compared(log: MemoryLog, source: MemorySource, mender: Noting | None = None, **settings: Any) -> TableResult:
    return TableComparison(source, USERS, lambda: view_of(log, source, **settings), 5, silent, mender).run()


def row(key: int, name: str = "a") -> Row:
    return {"id": key, "name": name}


def written(*transactions: list[Write], **settings: Any) -> MemoryLog:
    log = MemoryLog()
    Captured(log, {"users": "id long, name string"}, **settings).write(*transactions)
    return log


def create(key: int, name: str = "a") -> Write:
    return Write("users", "c", row(key, name))


def update(key: int, name: str) -> Write:
    return Write("users", "u", row(key, name))


def delete(key: int) -> Write:
    return Write("users", "d", row(key))


@pytest.mark.parametrize("seed", range(40))
def test_all_differences_are_found_and_no_others(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    monkeypatch.setattr(folding, "LEAST", random.choice([1, 7, 1 << 20]))
    monkeypatch.setattr(records, "BLOCK_ROWS", random.choice([1, 5, 1 << 17]))
    monkeypatch.setattr(comparing, "MANY", random.choice([0, 2, 1000]))
    monkeypatch.setattr(comparing, "KEYS", random.choice([1, 3, 1000]))
    log, live, seen = MemoryLog(), dict[int, Row](), dict[int, Row]()
    captured = Captured(log, {"users": "id long, name string"}, partitions=random.choice([1, 3]))
    hidden: set[int] = set()
    for number in range(random.randrange(1, 60)):
        if number > 40 and random.random() < 0.3:
            hidden.add(700 + number)
        writes = []
        for _ in range(random.randrange(1, 4)):
            key = random.randrange(25)
            if key in live and random.random() < 0.4:
                del live[key]
                writes.append(delete(key))
                if 700 + number not in hidden:
                    seen.pop(key, None)
            else:
                live[key] = row(key, random.choice("abc"))
                writes.append(Write("users", "c", live[key]))
                if 700 + number not in hidden:
                    seen[key] = live[key]
        captured.write(writes)
    rows = dict(seen)
    for key in random.sample(range(30), random.randrange(6)):
        if random.random() < 0.4:
            rows.pop(key, None)
        else:
            rows[key] = row(key, random.choice("abcd"))
    source = MemorySource(rows, hidden)
    noting = Noting()
    found = compared(log, source, noting)
    missing, extra = rows.keys() - seen.keys(), seen.keys() - rows.keys()
    different = {key for key in rows.keys() & seen.keys() if rows[key] != seen[key]}
    assert (found.missing, found.extra, found.different) == (len(missing), len(extra), len(different))
    assert (found.rows, found.log_rows) == (len(rows), len(seen))
    assert found.equal == (rows == seen) == (found.checksum == found.log_checksum) == (not found.differing and not found.extra)
    newer = {key for write in hidden for key in keys_of(log, write)}
    expected = {f'{{"id":{key}}}' for key in (missing | extra | different) - newer}
    assert noting.written.keys() == expected
    assert all((text and orjson.loads(text)) == rows.get(orjson.loads(key)["id"]) for key, text in noting.written.items())
    assert len(found.shown) == min(5, found.differences)


def keys_of(log: MemoryLog, xid: int) -> set[int]:
    view = view_of(log, MemorySource({}))
    return {orjson.loads(key)["id"] for each, _ in view.read() for key in each.keys.filter(pl.Series(each.xid == xid))}


def test_a_transaction_that_the_snapshot_does_not_see_makes_no_difference() -> None:
    log = written([create(1), create(2)], [update(1, "b"), delete(2), create(3)])
    assert compared(log, MemorySource({1: row(1), 2: row(2)}, {701})).equal
    assert not compared(log, MemorySource({1: row(1), 2: row(2)})).equal


def test_records_before_a_resnapshot_count_whatever_their_transactions_are_called() -> None:
    log = written([create(1)])
    source = MemorySource({1: row(1)}, {700})
    assert compared(log, source).missing == 1
    assert compared(log, source, settled=[1]).equal


def test_both_values_of_a_row_that_differs_are_shown() -> None:
    (difference,) = compared(written([create(1, "x" * 1000)]), MemorySource({1: row(1, "y")})).shown
    (column,) = difference.columns
    assert (difference.kind, difference.key, column.name, column.source) == ("different", '{"id":1}', "name", '"y"')
    assert column.log is not None
    assert column.log.startswith('"xxx')
    assert column.log.endswith("… (1002 characters)")


@pytest.mark.parametrize("many", [0, 100])
def test_a_column_that_the_log_does_not_know_yet_is_null_there(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "MANY", many)
    log = written([create(1), create(2), create(3)])
    rows = {key: {"new": None, **row(key)} for key in (1, 2, 3)}
    source = MemorySource(rows, columns=("new", "id", "name"))
    found = compared(log, source)
    assert found.equal
    assert found.checksum == found.log_checksum
    assert not found.differing
    source.rows[2] = {"new": 5, **row(2)}
    found = compared(log, source)
    assert (found.different, len(found.differing)) == (1, 1)
    assert [(each.name, each.source, each.log) for each in found.shown[0].columns] == [("new", "5", None)]


def test_a_column_that_was_dropped_since_makes_no_difference() -> None:
    assert compared(written([create(1), create(2)]), MemorySource({1: {"id": 1}, 2: {"id": 2}}, columns=("id",))).equal


def test_a_flat_topic_is_compared_without_what_may_be_newer_than_the_snapshot() -> None:
    log = written([create(1), create(2), create(3)], [update(1, "b"), delete(2)], flat=True)
    rows = {1: row(1), 2: row(2), 3: row(3)}
    found = compared(log, MemorySource(rows), flat=True, since=[3])
    assert found.equal
    found = compared(log, MemorySource(rows | {1: row(1, "c"), 3: row(3, "c")}), flat=True, since=[3])
    assert (found.different, found.unsettled, found.equal) == (1, 1, False)


def test_keys_of_a_flat_topic_are_mended_by_their_flat_names() -> None:
    log = written([create(1), create(2)], flat=True)
    noting = Noting()
    compared(log, MemorySource({1: row(1, "b"), 3: row(3)}), noting, flat=True, since=[2])
    assert noting.written == {'{"id":1}': '{"id":1,"name":"b"}', '{"id":3}': '{"id":3,"name":"a"}', "2": None}
    assert values_in(flat_key(pa.array(['{"id":1}'])), str) == ["1"]


def test_a_compacted_topic_says_nothing_of_keys_that_are_newer() -> None:
    log = written([create(2)], [update(1, "b")])  # the record that created 1 was compacted away
    topic = log.topic(TOPIC)
    compacted = replace(view_of(log, MemorySource({}, {701})), topic=Compacted(topic))
    found = TableComparison(MemorySource({1: row(1), 2: row(2)}, {701}), USERS, lambda: compacted, 5, silent).run()
    assert (found.missing, found.unsettled) == (0, 1)


class Compacted:
    """A topic that says it is compacted."""

    def __init__(self, topic: Any) -> None:
        self._topic, self.spec = topic, replace(topic.spec, compact=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._topic, name)
