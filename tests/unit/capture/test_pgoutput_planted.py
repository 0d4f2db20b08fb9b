"""Bugs planted in the decoder by columns: the law must catch each of them."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings

from capture_laws import Decodes, agrees
from capture_messages import streams
from penstock.capture.postgres.decode.changes import NO_OLD, OLD_KEY, Batch, Column, TableChanges
from penstock.capture.postgres.decode.pgoutput import Decoder


class Planted:
    """The right decoder, with something wrong in what it gives of each table."""

    def __init__(self, wrong: Callable[[TableChanges], TableChanges] = lambda right: right) -> None:
        self._right, self._wrong = Decoder(), wrong

    def decode(self, messages: Sequence[bytes]) -> Batch:
        batch = self._right.decode(messages)
        return replace(batch, tables=tuple(map(self._wrong, batch.tables)))


class RelationChangeIgnored(Planted):
    """A table keeps for a whole batch the columns it had at its beginning, where their number stays."""

    def decode(self, messages: Sequence[bytes]) -> Batch:
        batch = super().decode(messages)
        first = {table.relation.oid: table.relation for table in reversed(batch.tables)}
        same = [len(first[table.relation.oid].columns) == len(table.relation.columns) for table in batch.tables]
        return replace(
            batch,
            tables=tuple(
                replace(table, relation=first[table.relation.oid]) if stays else table
                for table, stays in zip(batch.tables, same, strict=True)
            ),
        )


def index_per_table(right: TableChanges) -> TableChanges:
    starts = np.flatnonzero(np.append(True, right.commit_lsn[1:] != right.commit_lsn[:-1]))
    own = np.arange(len(right)) - np.repeat(starts, np.diff(np.append(starts, len(right))))
    return replace(right, index=own)


def unchanged_is_null(right: TableChanges) -> TableChanges:
    return replace(right, after=tuple(Column(values, np.zeros_like(unchanged)) for values, unchanged in right.after))


def old_key_is_lost(right: TableChanges) -> TableChanges:
    lost = (right.op == ord("u")) & (right.old == OLD_KEY)
    gone = pa.array(~lost)
    before = tuple(Column(values.filter(gone).take(_or_null(~lost)), unchanged & ~lost) for values, unchanged in right.before)
    return replace(right, old=np.where(lost, np.uint8(NO_OLD), right.old), before=before)


def _or_null(kept: np.ndarray) -> pa.Array:
    return pa.array(np.cumsum(kept) - 1, mask=~kept)


def empty_is_null(right: TableChanges) -> TableChanges:
    def nulled(column: Column) -> Column:
        return Column(pa.array([value or None for value in column.values.to_pylist()], pa.utf8()), column.unchanged)

    return replace(right, after=tuple(map(nulled, right.after)))


def all_agree(decoder: Callable[[], Decodes]) -> None:
    @settings(max_examples=300, phases=[Phase.generate], database=None)
    @given(streams())
    def law(messages: list[bytes]) -> None:
        assert agrees(decoder(), messages)

    law()


def test_the_right_one_passes() -> None:
    all_agree(Planted)


@pytest.mark.parametrize("wrong", [index_per_table, unchanged_is_null, old_key_is_lost, empty_is_null])
def test_a_planted_bug_is_caught(wrong: Callable[[TableChanges], TableChanges]) -> None:
    with pytest.raises(AssertionError):
        all_agree(lambda: Planted(wrong))


def test_a_relation_change_that_is_ignored_is_caught() -> None:
    with pytest.raises(AssertionError):
        all_agree(RelationChangeIgnored)
