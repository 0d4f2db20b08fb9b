"""Rows on their way into a file."""

import pyarrow as pa
import pytest

from penstock.engine.execute.staging import Pile
from penstock.engine.state.runs import read_arrow
from penstock.storage.memory import MemoryStorage


def numbers(start: int, end: int) -> pa.Table:
    return pa.table({"n": pa.array(range(start, end), pa.int64())})


@pytest.mark.parametrize("pieces", [[3], [99, 1], [100], [60, 60, 60, 5], [250, 0, 250]])
def test_a_pile_gives_back_every_row_in_order(pieces: list[int]) -> None:
    pile, at = Pile(batch=100), 0
    for size in pieces:
        pile.append(numbers(at, at := at + size))
    path, _ = pile.write(storage := MemoryStorage(), "staged/0")
    assert pile.rows == at
    assert read_arrow(storage, path).read_all().equals(numbers(0, at))


def test_what_is_much_is_compressed_and_what_is_little_is_not() -> None:
    little, much = Pile(batch=10_000), Pile(batch=10_000)
    little.append(numbers(0, 9_999))
    much.append(numbers(0, 10_000))
    assert little.write(MemoryStorage(), "a")[1] > 9_999 * 8
    assert much.write(MemoryStorage(), "b")[1] < 10_000 * 8
