"""The numbers of changes in their transactions, against counting one after the other."""

from collections import Counter
from random import Random

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.capture.port import CREATE, Changes, Table
from penstock.capture.writing.orders import counts_of, orders_of

TABLES: list[Table] = [("public", "a"), ("public", "b"), ("", "c")]


def changes_of(table: Table, places: list[tuple[int, int]]) -> Changes:
    texts = pa.array(["{}"] * len(places), pa.utf8())
    transaction, index = (np.array([place[i] for place in places], np.int64) for i in (0, 1))
    return Changes(table, np.full(len(places), CREATE, np.uint8), texts, texts, texts, transaction, index)


@given(st.integers(0, 2**32), st.integers(0, 40), st.booleans())
def test_numbers_and_counts_are_those_of_counting_one_by_one(seed: int, many: int, goes_on: bool) -> None:
    random = Random(seed)
    places = sorted((random.randrange(4), i) for i in range(many))
    tables = [random.choice(TABLES) for _ in places]
    before = {TABLES[0]: random.randrange(5), TABLES[2]: 3} if goes_on else {}
    changes = [changes_of(table, [place for place, of in zip(places, tables, strict=True) if of == table]) for table in TABLES]
    seen = [Counter(before)] + [Counter[Table]() for _ in range(3)]
    should: dict[tuple[int, int], tuple[int, int]] = {}
    for place, table in zip(places, tables, strict=True):
        seen[place[0]][table] += 1
        should[place] = seen[place[0]].total(), seen[place[0]][table]
    for each, orders in zip(changes, orders_of(changes, before), strict=True):
        found = zip(each.transaction.tolist(), each.index.tolist(), orders.total.tolist(), orders.of_table.tolist(), strict=True)
        for transaction, index, total, of_table in found:
            assert should[transaction, index] == (total, of_table)
    counts = counts_of(changes, 4, before)
    assert {table: count.tolist() for table, count in counts.items()} == {table: [each[table] for each in seen] for table in counts}
    assert set().union(*seen) <= counts.keys()


def test_changes_at_the_same_place_stand_as_they_are_given() -> None:
    (orders,) = orders_of([changes_of(TABLES[0], [(0, 4), (0, 4), (0, 5), (1, 0)])], {})
    assert orders.total.tolist() == orders.of_table.tolist() == [1, 2, 3, 1]


def test_nothing_has_no_numbers() -> None:
    assert orders_of([], {}) == []
    assert counts_of([], 0, {}) == {}
