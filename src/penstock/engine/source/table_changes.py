"""Records of a table's topic: which row each of them is about, and whether it is put in or taken out."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.arrow import array_of, values_in
from penstock.core.change import Op
from penstock.core.columns import EVENT_TIME, KEY
from penstock.core.schema import Schema
from penstock.core.time import NEVER
from penstock.engine.source.clocks import times_of
from penstock.engine.source.decoded_changes import DecodedChanges, decode_changes
from penstock.engine.source.spec import SourceSpec
from penstock.log.intake.keys import key_row

Times = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

WORDS = dict.fromkeys(("c", "r", "u", "i", "insert", "create", "read", "update", "upsert"), Op.INSERT)
WORDS |= dict.fromkeys(("d", "delete"), Op.DELETE)


def versions_of(spec: SourceSpec, table: pa.Table, appended: Times, before: pa.Table | None) -> tuple[DecodedChanges, Times, Mask]:
    """The versions that stored records are: what they say, the time of each, and which of them can be used.

    before: the record that stands before them, if there is one."""
    assert spec.versions
    decoded = decode_changes(spec, table, before)
    if spec.versions.op:
        decoded.ops = _ops(spec.versions.op, decoded)
    if not spec.changelog:  # there null is a value that names a row, too
        decoded.table = _keyed(spec.versions.key, spec.schema, decoded, table)
    _refuse_nulls(spec, decoded)
    times = _times(spec, decoded, table, appended)
    alive = np.ones(table.num_rows, np.bool_)
    alive[list(decoded.reasons)] = False
    return decoded, times, alive


def _ops(name: str, decoded: DecodedChanges) -> npt.NDArray[np.int8]:
    """What an op column says; where it says nothing a row is put in."""
    column = decoded.table.column(name)
    coded = column.combine_chunks().dictionary_encode()
    words = values_in(coded.dictionary, str)
    known = np.array([WORDS.get(word.strip().lower(), -1) for word in words] or [-1], np.int8)
    chosen = known[coded.indices.fill_null(0).to_numpy(zero_copy_only=False)]
    chosen = np.where(column.is_null().to_numpy() | (decoded.ops == Op.DELETE), decoded.ops, chosen)
    for i in np.flatnonzero(chosen < 0).tolist():
        decoded.reasons.setdefault(
            i, f"column {name!r} says {column[i].as_py()!r}: neither insert, update, upsert nor delete, nor c, r, u, d"
        )
    return np.where(chosen < 0, decoded.ops, chosen).astype(np.int8)


def _keyed(key: Sequence[str], schema: Schema, decoded: DecodedChanges, stored: pa.Table) -> pa.Table:
    """The rows with their key columns filled in from the record's key, where a delete does not say them."""
    table, missing = decoded.table, np.zeros(decoded.table.num_rows, np.bool_)
    for name in key:
        if table.column(name).null_count:
            missing |= table.column(name).is_null().to_numpy()
    missing &= decoded.ops == Op.DELETE
    missing[list(decoded.reasons)] = False
    rows = np.flatnonzero(missing)
    if not len(rows):
        return table
    keys = stored.column(KEY).take(rows).to_pylist() if KEY in stored.column_names else [None] * len(rows)
    found = [key_row(data, key, schema) for data in keys]
    decoded.reasons |= {int(i): f"a delete, and {row}" for i, row in zip(rows, found, strict=True) if isinstance(row, str)}
    for name in key:
        values = pa.array([None if isinstance(row, str) else row[name] for row in found], schema.type(name))
        at = np.full(table.num_rows, -1)
        at[rows] = np.arange(len(rows))
        filled = pa.chunked_array([values.take(array_of(at, absent=at < 0))])
        table = table.set_column(table.column_names.index(name), name, pc.coalesce(table.column(name), filled))
    return table


def _refuse_nulls(spec: SourceSpec, decoded: DecodedChanges) -> None:
    """A row without its key is none; and what is put in has all that the schema wants."""
    assert spec.versions
    for f in spec.schema:
        is_key = f.name in spec.versions.key and not spec.changelog
        column = decoded.table.column(f.name)
        if not column.null_count or (f.nullable and not is_key):
            continue
        missing = column.is_null().to_numpy() & (is_key | (decoded.ops != Op.DELETE))
        why = "the key of the table" if is_key else "it must not be null"
        for i in np.flatnonzero(missing).tolist():
            decoded.reasons.setdefault(i, f"column {f.name!r} is null: {why}")


def _times(spec: SourceSpec, decoded: DecodedChanges, stored: pa.Table, appended: Times) -> Times:
    """The time of each version: the flow's column, else what the record says, else the record's own. A delete need not have the
    flow's column."""
    own = appended
    if EVENT_TIME in stored.column_names and not spec.append:
        event, known = times_of(stored, EVENT_TIME)
        own = np.where(known, event, appended)
    if decoded.times is not None:
        own = np.where(decoded.times > NEVER, decoded.times, own)
    if not spec.time:
        return own
    times, timed = times_of(decoded.table, spec.time)
    for i in np.flatnonzero(~timed & (decoded.ops != Op.DELETE)).tolist():
        decoded.reasons.setdefault(i, f"no event time in column {spec.time!r}")
    return np.where(timed, times, own)
