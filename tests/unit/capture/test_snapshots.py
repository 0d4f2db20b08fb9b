"""Snapshots merged with the stream by visibility: together they are the table, whatever is written or killed meanwhile."""

from collections.abc import Callable, Collection
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amount import cases
from capture_history import ROUND, exact
from capture_messages import begin, commit, delete, described, insert, update
from penstock.capture.postgres.copy import snapshots
from penstock.capture.postgres.copy.snapshots import Chunk, ChunkMerge, Settled, Snapshot, key_text, touched, visible
from penstock.capture.postgres.decode.changes import Xids
from penstock.capture.postgres.decode.messages import Relation, RelationColumn
from penstock.capture.postgres.decode.pgoutput import Decoder
from penstock.errors import BadInput

ENOUGH = 400


@settings(max_examples=cases(300))
@given(st.integers(0, 2**32))
def test_the_log_folded_is_the_table_at_each_moment(seed: int) -> None:
    assert exact(seed)


@settings(max_examples=cases(100))
@given(st.integers(0, 2**32), st.integers(0, 4))
def test_that_holds_however_few_changes_are_remembered(seed: int, most: int) -> None:
    assert exact(seed, partial(ChunkMerge, most=most))


class GivenOutAtOnce(ChunkMerge):
    def settled(self, passed: int) -> Settled | None:
        return super().settled(1 << 64)


class NothingLeftOut(ChunkMerge):
    def changed(self, xids: Xids, keys: pa.Array) -> None: ...


class Watermarks(ChunkMerge):
    """Only what is streamed while a chunk is open counts, as between two watermarks."""

    def open(self, chunk: Chunk) -> None:
        self.forget(Snapshot(1 << 62, 1 << 62, frozenset()))
        super().open(chunk)


class TruncateForgotten(ChunkMerge):
    def truncated(self, xid: int) -> None: ...


class NothingBefore(ChunkMerge):
    """After a kill it reads on at once."""

    def __init__(self, before: Collection[int] = ()) -> None:
        super().__init__()


class Forgetful(ChunkMerge):
    """Remembers few changes, and does not wait for what it has forgotten."""

    def __init__(self, before: Collection[int] = ()) -> None:
        super().__init__(before, most=1)

    def changed(self, xids: Xids, keys: pa.Array) -> None:
        before = self._before
        super().changed(xids, keys)
        self._before = before


def by_xmax_alone(xid: int, snapshot: Snapshot) -> bool:
    return visible(xid, Snapshot(snapshot.xmax, snapshot.xmax, frozenset()))


def without_wraparound(xid: int, snapshot: Snapshot) -> bool:
    full = snapshot.xmax - snapshot.xmax % ROUND + xid
    return full < snapshot.xmax and full not in snapshot.running


def caught(merge: Callable[[list[int]], ChunkMerge]) -> bool:
    return not all(map(partial(exact, merge=merge), range(ENOUGH)))


@pytest.mark.parametrize("wrong", [GivenOutAtOnce, NothingLeftOut, Watermarks, TruncateForgotten, NothingBefore, Forgetful])
def test_a_planted_bug_of_the_merge_is_caught(wrong: type[ChunkMerge]) -> None:
    assert caught(wrong)


@pytest.mark.parametrize("wrong", [by_xmax_alone, without_wraparound])
def test_a_planted_bug_of_visibility_is_caught(wrong: Callable[[int, Snapshot], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "visible", wrong)
    assert caught(ChunkMerge)


@settings(max_examples=cases(300))
@given(st.integers(3, 2**40), st.integers(0, 2**20), st.integers(-(2**31) + 1, 2**31 - 1), st.data())
def test_an_id_of_32_bits_means_the_transaction_nearest_to_the_snapshot(low: int, span: int, off: int, data: st.DataObject) -> None:
    running = data.draw(st.frozensets(st.integers(low, low + span - 1), max_size=4)) if span else frozenset[int]()
    snapshot = Snapshot(low, low + span, running)
    full = snapshot.xmax + off
    if full >= 3:
        assert visible(full % ROUND, snapshot) == (full < low or (full < snapshot.xmax and full not in running))
        assert snapshot.sees(np.array([full % ROUND] * 2, np.uint32)).tolist() == [visible(full % ROUND, snapshot)] * 2


@settings(max_examples=cases(100))
@given(st.integers(0, 2**64 - 1), st.sets(st.integers(0, 50), max_size=4))
def test_a_snapshot_is_read_as_it_is_written(xmin: int, running: set[int]) -> None:
    snapshot = Snapshot(xmin, min(xmin + 51, 2**64 - 1), frozenset(xmin + each for each in running if xmin + each < 2**64 - 1))
    assert Snapshot.parse(str(snapshot)) == snapshot


@pytest.mark.parametrize("text", ["", "1:2", "2:1:", "1:5:5", "5:9:4", "a:b:", "1:2:3,", "1:2: ", f"1:{2**64}:"])
def test_what_is_no_snapshot_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is no snapshot"):
        Snapshot.parse(text)


def test_rows_left_out_are_told_apart_and_changes_are_forgotten_once_they_are_visible() -> None:
    merge = ChunkMerge()
    merge.changed(np.array([9, 11], np.uint32), pa.array(["1", "2"]))
    rows = pa.table({"id": ["1", "2", "3"]})
    merge.open(Chunk(rows, rows["id"].combine_chunks(), Snapshot.parse("10:20:11"), 50))
    assert merge.remembered == 1
    assert merge.settled(49) is None
    settled = merge.settled(50)
    assert settled is not None
    assert (settled.rows["id"].to_pylist(), settled.left_out["id"].to_pylist()) == (["1", "3"], ["2"])
    merge.forget(Snapshot.parse("20:20:"))
    assert merge.remembered == 0


def test_a_transaction_of_many_rows_is_remembered_by_its_id_alone() -> None:
    merge, rows = ChunkMerge(most=100), pa.table({"id": ["1", "2", "5000"]})
    merge.open(Chunk(rows, rows["id"].combine_chunks(), Snapshot.parse("10:11:"), 50))
    for start in range(0, 10_000, 50):
        merge.changed(np.full(50, 12, np.uint32), pa.array(map(str, range(start + 2, start + 52))))
        assert merge.remembered <= 100
    settled = merge.settled(50)
    assert settled is not None
    assert (settled.rows["id"].to_pylist(), settled.left_out["id"].to_pylist()) == (["1"], ["2", "5000"])
    assert not merge.may_open(Snapshot.parse("12:13:12"))
    assert merge.may_open(Snapshot.parse("13:13:"))


def test_after_a_kill_no_chunk_is_read_before_what_was_streamed_is_visible() -> None:
    merge = ChunkMerge(before=[7])
    assert not merge.may_open(Snapshot.parse("5:10:7"))
    assert merge.may_open(Snapshot.parse("8:10:"))


def test_the_keys_of_changes_are_old_ones_and_new_ones() -> None:
    table = Relation(7, "public", "t", "f", tuple(RelationColumn(name, 25, -1, True) for name in ("a", "b", "v")))
    changes = [insert(7, ["1", "x", "v"]), update(7, ["2", "x", "v"], ["1", "x", "v"], b"O"), delete(7, ["2", "x", "v"], b"O")]
    (found,) = Decoder().decode([begin(1, 44), described(table), *changes, commit(1)]).tables
    xids, keys = touched(found, [0, 1])
    assert set(xids.tolist()) == {44}
    assert sorted(keys.to_pylist()) == ["1:11:x", "1:11:x", "1:21:x", "1:21:x"]
    assert sorted(touched(found, [0])[1].to_pylist()) == ["1", "1", "2", "2"]


@settings(max_examples=cases(100))
@given(st.lists(st.tuples(st.text("1:ä", max_size=3), st.text("1:ä", max_size=3)), max_size=6, unique=True))
def test_different_keys_have_different_texts(rows: list[tuple[str, str]]) -> None:
    columns = [pa.array([row[i] for row in rows], pa.utf8()) for i in (0, 1)]
    assert len(set(key_text(columns).to_pylist())) == len(rows)
