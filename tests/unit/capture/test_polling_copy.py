"""Copies of polls on disk, compared with what is there now: as one would compare two dictionaries."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amount import cases
from penstock.capture.polling.copy import CopyWriter, TableCopy
from penstock.capture.polling.digests import BUCKETS, Digests
from penstock.storage.local import LocalStorage
from penstock.storage.memory import MemoryStorage
from penstock.storage.port import Storage

Rows = dict[str, str]
ROWS = st.dictionaries(st.integers(0, 60).map(str), st.sampled_from(["a", "b", ""]), max_size=40)


def digests_of(rows: Rows) -> Digests:
    return Digests.of(pa.array(list(rows), pa.utf8()), pa.array(list(rows.values()), pa.utf8()))


def copied(storage: Storage, rows: Rows, path: str = "copy", piece: int = 7, held: int = 1) -> TableCopy:
    writer = CopyWriter(storage, "spill", held)
    items = list(rows.items())
    for start in range(0, len(items), piece):
        writer.add(digests_of(dict(items[start : start + piece])))
    assert sum(map(len, writer.write(path))) == writer.rows == len(rows)
    return TableCopy(storage, path)


@settings(max_examples=cases(100))
@given(ROWS, ROWS, st.sampled_from([1, 400, 1 << 20]))
def test_what_is_new_and_what_has_changed_is_what_two_dictionaries_say(before: Rows, now: Rows, held: int) -> None:
    old = copied(MemoryStorage(), before, held=held)
    new, changed = old.compared(digests_of(now))
    assert new.tolist() == [key not in before for key in now]
    assert changed.tolist() == [key in before and before[key] != value for key, value in now.items()]


@settings(max_examples=cases(100))
@given(ROWS, ROWS)
def test_what_is_gone_is_what_the_new_copy_does_not_have(before: Rows, now: Rows) -> None:
    storage = MemoryStorage()
    old, new = copied(storage, before, "old"), copied(storage, now, "new")
    gone = set[str]()
    for number in range(BUCKETS):
        mine = old.bucket(number)
        gone.update(mine.keys.take(np.flatnonzero(new.bucket(number).places_of(mine) < 0)).to_pylist())
    assert gone == before.keys() - now.keys()


def test_a_copy_stays_as_it_is_on_disk(tmp_path: object) -> None:
    storage = LocalStorage(tmp_path)  # type: ignore[arg-type]
    rows = {str(number): "x" * (number % 5) for number in range(20_000)}
    old = copied(storage, rows, piece=3_000, held=100_000)
    assert storage.list("spill") == []
    new, changed = old.compared(digests_of({**rows, "7": "other", "20000": ""}))
    assert (np.flatnonzero(new).tolist(), np.flatnonzero(changed).tolist()) == ([20_000], [7])


def test_keys_whose_first_words_are_the_same_are_told_apart() -> None:
    words = np.array([5, 5, 5, 9], np.uint64)
    low = np.array([1, 2, 3, 1], np.uint64)
    mine = Digests(words, low, low, low, pa.array(list("abcd"), pa.utf8()))
    asked = Digests(words[[2, 0, 3, 1]], np.array([3, 4, 1, 2], np.uint64), low, low, pa.array(list("cxdb"), pa.utf8()))
    assert mine.places_of(asked).tolist() == [2, -1, 3, 1]


@pytest.mark.parametrize("path", [None])
def test_no_copy_is_as_one_of_an_empty_table(path: str | None) -> None:
    new, changed = TableCopy(MemoryStorage(), path).compared(digests_of({"1": "a"}))
    assert (new.tolist(), changed.tolist()) == ([True], [False])
