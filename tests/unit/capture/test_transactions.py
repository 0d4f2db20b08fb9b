"""Whole transactions, for consumers."""

import random

import pytest

from captured import Captured, Write
from penstock.capture.transactions import Transaction, committed
from penstock.core.time import moment
from penstock.errors import BadInput, NotFound
from penstock.log.memory import MemoryLog

TABLES = {"users": "id long, name string", "orders": "id long, user_id long"}


class Killed(BaseException):
    """The capture is gone."""


def user(op: str, id: int, name: str = "") -> Write:
    return Write("users", op, {"id": id, "name": name})


def order(op: str, id: int) -> Write:
    return Write("orders", op, {"id": id, "user_id": 1})


def changes(transaction: Transaction) -> list[tuple[str, str, int]]:
    """Table, op and id of each change, in the order of the database where that is known."""
    found = [(change.order, table, change.op, change.key["id"]) for table, of in transaction.changes.items() for change in of]
    return [each[1:] for each in sorted(found, key=lambda each: each[0])]


def test_each_transaction_has_its_changes_by_table_in_the_order_of_commits() -> None:
    log = MemoryLog()
    captured = Captured(log, TABLES)
    captured.write([user("c", 1, "a"), order("c", 7)], [user("u", 1, "b"), user("d", 1, "b")])
    captured.write([order("d", 7)])
    first, second, third = committed(log, "shop")
    assert (first.id, first.time) == ("700:1000", moment(1_705_312_800_000_000))
    assert changes(first) == [("public.users", "c", 1), ("public.orders", "c", 7)]
    update, delete = second.changes["public.users"]
    assert (update.op, update.after, update.order) == ("u", {"id": 1, "name": "b"}, 1)
    assert (delete.op, delete.before, delete.after, delete.order) == ("d", {"id": 1, "name": "b"}, None, 2)
    assert changes(third) == [("public.orders", "d", 7)]


@pytest.mark.parametrize("flat", [False, True])
def test_what_is_not_whole_yet_is_left_out_and_comes_once_when_it_is(flat: bool) -> None:
    log, kill = MemoryLog(), [False]

    def fail(point: str) -> None:
        if kill[0] and point == "capture.appended":
            raise Killed

    captured = Captured(log, TABLES, flat=flat, fail=fail)
    captured.write([user("c", 1), order("c", 7)], [user("c", 2)], [order("c", 8), user("u", 1)], ends=False)
    assert list(committed(log, "shop")) == [], "an END with an open transaction behind it is none"
    captured.write([user("u", 2), order("c", 9)], [user("c", 3)])
    kill[0] = True
    with pytest.raises(Killed):
        captured.write([user("c", 4), order("c", 10)])
    found = list(committed(log, "shop"))
    assert [sorted(changes(each)) for each in found] == [
        [("public.orders", "u" if flat else "c", 7), ("public.users", "u" if flat else "c", 1)],
        [("public.users", "u" if flat else "c", 2)],
        sorted([("public.orders", "u" if flat else "c", id) for id in (8, 9)] + [("public.users", "u", id) for id in (1, 2)]),
        [("public.users", "u" if flat else "c", 3)],
    ]
    kill[0] = False
    captured.start()
    captured.write([user("c", 4), order("c", 10)])
    assert len(list(committed(log, "shop", found[-1].offset + 1))) == 1


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_a_consumer_goes_on_behind_any_transaction(seed: int, flat: bool) -> None:
    log, rng = MemoryLog(), random.Random(seed)
    captured = Captured(log, TABLES, flat=flat, partitions=1 if flat else rng.choice([1, 3]))
    written, ends = 0, True
    while written < 12 or not ends:
        ends = rng.random() < 0.7
        writes = [
            [rng.choice([user, order])("c", rng.randrange(9)) for _ in range(rng.randint(1, 4))] for _ in range(rng.randint(1, 3))
        ]
        captured.write(*writes, ends=ends)
        written += len(writes) if ends else len(writes) - 1
    every = list(committed(log, "shop"))
    assert len(every) == written
    for place, transaction in enumerate(every):
        assert list(committed(log, "shop", transaction.offset + 1)) == every[place + 1 :]


def test_a_transaction_without_changes_of_these_tables_is_there() -> None:
    log = MemoryLog()
    Captured(log, TABLES).write([], [user("c", 1)])
    assert [len(each.changes) for each in committed(log, "shop")] == [0, 1]


def test_flat_records_in_several_partitions_are_refused() -> None:
    log = MemoryLog()
    Captured(log, TABLES, flat=True, partitions=2).write([user("c", 1)])
    with pytest.raises(BadInput, match="its records are flat, and it has several partitions"):
        list(committed(log, "shop"))


def test_a_capture_that_has_written_nothing_is_not_found() -> None:
    with pytest.raises(NotFound, match="capture 'shop' has written nothing to this log"):
        next(committed(MemoryLog(), "shop"))
