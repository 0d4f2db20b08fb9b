"""Changes that triggers noted down in another order than they happened are put in order, row by row."""

from random import Random

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from amount import cases
from penstock.capture.port import CREATE, DELETE, UPDATE, Changes
from penstock.capture.triggers.ordering import in_order

Step = tuple[int, str, str | None, str | None]  # transaction, key, row before, row behind


def changes_of(steps: list[Step]) -> Changes:
    ops = [CREATE if before is None else DELETE if after is None else UPDATE for _, _, before, after in steps]
    texts = [pa.array([step[which] for step in steps], pa.utf8()) for which in (1, 2, 3)]
    transactions = np.array([step[0] for step in steps], np.int64)
    return Changes(("public", "t"), np.array(ops, np.uint8), *texts, transactions, np.arange(10, 10 + len(steps)))


def steps_of(changes: Changes) -> list[Step]:
    columns = changes.transaction.tolist(), changes.key.to_pylist(), changes.before.to_pylist(), changes.after.to_pylist()
    return list(zip(*columns, strict=True))


def history(random: Random) -> list[Step]:
    """What happens to a few rows in a few transactions; a row that comes again is another one."""
    rows: dict[str, str | None] = {}
    found = list[Step]()
    for number in range(random.randrange(1, 25)):
        key = random.choice("abc")
        before = rows.get(key)
        after = None if before is not None and random.random() < 0.3 else f"row {number}"
        found.append((number // 8, key, before, after))
        rows[key] = after
    return found


def shuffled(steps: list[Step], random: Random) -> list[Step]:
    """Each transaction in any order."""
    return sorted(steps, key=lambda step: (step[0], random.random()))


def chains(steps: list[Step]) -> bool:
    """Whether each change of a row begins where the one before in its transaction has ended."""
    rows: dict[tuple[int, str], str | None] = {}
    for number, key, before, after in steps:
        if rows.setdefault((number, key), before) != before:
            return False
        rows[number, key] = after
    return True


@settings(max_examples=cases(300))
@given(st.integers(0, 2**32))
def test_whatever_the_order_in_which_they_were_noted_down_each_row_has_its_history(seed: int) -> None:
    random = Random(seed)
    steps = history(random)
    made = in_order(changes_of(shuffled(steps, random)))
    assert sorted(map(str, steps_of(made))) == sorted(map(str, steps))
    assert made.transaction.tolist() == sorted(step[0] for step in steps)
    assert made.index.tolist() == list(range(10, 10 + len(steps)))
    assert chains(steps_of(made))
    assert [CREATE if step[2] is None else DELETE if step[3] is None else UPDATE for step in steps_of(made)] == made.op.tolist()


@settings(max_examples=cases(100))
@given(st.integers(0, 2**32))
def test_what_is_in_order_stays_as_it_is(seed: int) -> None:
    changes = changes_of(history(Random(seed)))
    assert in_order(changes) is changes


def test_a_row_that_comes_back_to_what_it_was_is_in_order_either_way() -> None:
    back = [(0, "a", "x", "y"), (0, "a", "y", "x"), (0, "a", "x", None)]
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]):
        assert steps_of(in_order(changes_of([back[i] for i in order]))) == back


def test_what_fits_in_no_order_stays_as_it_is() -> None:
    odd = [(0, "a", "x", "y"), (0, "a", "p", "q")]
    assert steps_of(in_order(changes_of(odd))) == odd
