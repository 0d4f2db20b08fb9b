"""What the records of a table's topic say, one by one: rows, deletes, envelopes; as typed topics and as raw ones hold them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.arrow import array_of, one_array
from penstock.core.change import Op
from penstock.core.columns import BAD, KEY, VALUE
from penstock.core.schema import Schema
from penstock.core.time import NEVER
from penstock.engine.source import debezium
from penstock.engine.source.debezium import Change, Envelopes, Unfit
from penstock.engine.source.parsed_changes import parsed
from penstock.engine.source.spec import SourceSpec
from penstock.log.intake.codec import decode_rows, make_decimals_exact, parse_objects
from penstock.log.intake.columns import Reasons
from penstock.log.intake.stored_rows import deletes_of

Times = npt.NDArray[np.int64]
NO_PLACE = b"\x00"  # before every place: what stands there never beats a record that knows its own


@dataclass
class DecodedChanges:
    """What records say, in the declared columns: one row each. Those with a reason cannot be used."""

    table: pa.Table
    ops: npt.NDArray[np.int8]
    reasons: Reasons
    times: Times | None = None  # as the records say; NEVER where they do not; None: none of them does
    places: pa.Array | None = None  # in the database they come from; null where they do not say


def decode_changes(spec: SourceSpec, table: pa.Table, before: pa.Table | None) -> DecodedChanges:
    """What stored records say; before: the record that stands before them, if there is one."""
    if spec.raw:
        return _captured(spec, table) or _raw(spec, table, before)
    return _envelopes(spec, table) if spec.envelope else _rows(spec, table)


def _rows(spec: SourceSpec, table: pa.Table) -> DecodedChanges:
    gone = deletes_of(table, raw=False)
    ops = np.full(table.num_rows, Op.INSERT, np.int8)
    return DecodedChanges(table, ops if gone is None else np.where(gone, np.int8(Op.DELETE), ops), {})


def _captured(spec: SourceSpec, table: pa.Table) -> DecodedChanges | None:
    """What a capture has written, all at once; None where that cannot be done, or somebody else may have written it."""
    assert spec.versions
    if not spec.capture or spec.versions.form == "detect" or spec.versions.op or BAD in table.column_names:
        return None
    if not table.num_rows or KEY not in table.column_names:
        return None
    found = parsed(table.column(VALUE), table.column(KEY), spec.schema, spec.versions.form == "rows")
    return found and DecodedChanges(pa.table(found.columns), found.ops, {}, found.times)


def relaxed(schema: Schema) -> Schema:
    """The same columns, any of which may be null: a delete holds the key, and often nothing else."""
    return Schema(pa.schema([f.with_nullable(True) for f in schema]))


def _raw(spec: SourceSpec, table: pa.Table, before: pa.Table | None) -> DecodedChanges:
    """JSON values; a record without value is a delete of its key."""
    texts = table.column(VALUE).to_pylist()
    reasons: Reasons = {}
    records = parse_objects([b"{}" if text is None else text for text in texts], reasons)
    changes = _changes(spec, texts, records, reasons)
    if spec.placed:
        changes |= _repeated(spec, table, changes, before)
    rows: list[Mapping[str, Any]] = [changes[i].row if i in changes else record for i, record in enumerate(records)]
    make_decimals_exact(rows, texts, spec.schema, reasons, within=lambda record: _row_of(spec, record))
    decoded = decode_rows(rows, relaxed(spec.schema), reasons)
    ops = np.full(len(texts), Op.INSERT, np.int8)
    ops[[i for i, text in enumerate(texts) if text is None]] = Op.DELETE
    for i, change in changes.items():
        ops[i] = change.op
    out = DecodedChanges(_spread(decoded.table, decoded.kept, len(texts)), ops, {r.index: r.reason for r in decoded.rejected})
    if spec.placed:
        out.times = np.array([changes[i].time if i in changes else NEVER for i in range(len(texts))], np.int64)
    if spec.placed and not spec.capture:  # a capture writes in the order of commits, and places need not follow it
        out.places = pa.array([changes[i].place if i in changes else None for i in range(len(texts))], pa.binary())
    return out


def _changes(spec: SourceSpec, texts: list[bytes | None], records: list[dict[str, Any]], reasons: Reasons) -> dict[int, Change]:
    """The records that are envelopes, or stand in {schema, payload}: what they say."""
    assert spec.versions
    only, found = spec.versions.form == "debezium", dict[int, Change]()
    if not spec.placed:
        return found
    envelopes = Envelopes(spec.schema, only)
    for i, record in enumerate(records):
        if texts[i] is None:
            if only:
                found[i] = Change(Op.DELETE, {}, NEVER, NO_PLACE)
        elif i not in reasons and (only or "op" in record or "payload" in record):
            try:
                change = _change(record, envelopes, only)
            except Unfit as unfit:
                reasons[i] = str(unfit)
            else:
                if change:
                    found[i] = change
    return found


def _change(record: Mapping[str, Any], envelopes: Envelopes, only: bool) -> Change | None:
    """What an envelope or a payload says; None: the record is a row as it is."""
    payload, schema = envelopes.unwrapped(record)
    if payload is None:  # with its schema beside it, and without a value
        return Change(Op.DELETE, {}, NEVER, NO_PLACE if only else None)
    if not isinstance(payload, dict):
        raise Unfit(f'"payload" wants an object, found {type(payload).__name__}')
    if envelopes.is_envelope(payload):
        return envelopes.change(payload, schema)
    if only:
        raise Unfit(debezium.NO_ENVELOPE)
    return None if payload is record else Change(Op.INSERT, payload, NEVER, None)


def _row_of(spec: SourceSpec, record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row inside a record."""
    envelopes = Envelopes(spec.schema, spec.versions is not None and spec.versions.form == "debezium")
    payload = envelopes.unwrapped(record)[0] if spec.placed else record
    if spec.placed and isinstance(payload, dict) and envelopes.is_envelope(payload):
        payload = payload.get("before" if payload["op"] == "d" else "after")
    return payload if isinstance(payload, dict) else {}


def _repeated(spec: SourceSpec, table: pa.Table, changes: Mapping[int, Change], before: pa.Table | None) -> dict[int, Change]:
    """Deletes that say once more what the envelope right before them said: a record without value follows every `d`, so that
    compaction removes the key. It has the time and place of that envelope, for its own append time says nothing."""
    gone = deletes_of(table, raw=True)
    if gone is None or KEY not in table.column_names:
        return {}
    keys, out = table.column(KEY), dict[int, Change]()
    for i in np.flatnonzero(gone).tolist():
        last, key = (changes.get(i - 1), keys[i - 1].as_py()) if i else _before(spec, before)
        if last and last.op is Op.DELETE and last.time > NEVER and key is not None and key == keys[i].as_py():
            out[i] = last
    return out


def _before(spec: SourceSpec, before: pa.Table | None) -> tuple[Change | None, bytes | None]:
    if before is None or KEY not in before.column_names or before.column(VALUE)[0].as_py() is None:
        return None, None
    texts, reasons = before.column(VALUE).to_pylist(), dict[int, str]()
    return _changes(spec, texts, parse_objects(texts, reasons), reasons).get(0), before.column(KEY)[0].as_py()


def _spread(table: pa.Table, kept: npt.NDArray[np.int64], count: int) -> pa.Table:
    """The rows where they stood, null where there is none."""
    if len(kept) == count:
        return table
    places = np.full(count, -1, np.int64)
    places[kept] = np.arange(len(kept))
    return table.take(array_of(places, absent=places < 0))


def _envelopes(spec: SourceSpec, table: pa.Table) -> DecodedChanges:
    """A typed topic with the columns of envelopes."""
    n, reasons = table.num_rows, dict[int, str]()
    ops = np.full(n, Op.INSERT, np.int8)
    for i, word in enumerate(table.column("op").to_pylist()):
        try:
            ops[i] = debezium.op_of(word)
        except Unfit as unfit:
            reasons[i] = str(unfit)
    gone = deletes_of(table, raw=False)
    if gone is not None:  # a delete of the topic itself, and no envelope at all
        ops[gone] = Op.DELETE
        reasons = {i: reason for i, reason in reasons.items() if not gone[i]}
    taken = pa.array(ops == Op.DELETE)
    sides = [_side(table, name) for name in ("before", "after")]
    for i in np.flatnonzero(~taken.to_numpy(zero_copy_only=False) & _missing(sides[1], n)).tolist():
        reasons.setdefault(i, 'a row is put in, and "after" is null')
    columns = {f.name: pc.if_else(taken, _field(sides[0], f, n), _field(sides[1], f, n)) for f in spec.schema}
    said = [name for name in ("source", "ts_us", "ts_ms") if name in spec.envelope]
    whole = table.select(said).to_pylist() if said else [{}] * n
    sources = [row.get("source") or {} for row in whole]
    times = np.array([debezium.time_of(source, row) for source, row in zip(sources, whole, strict=True)], np.int64)
    return DecodedChanges(pa.table(columns), ops, reasons, times, pa.array([debezium.place_of(s) for s in sources], pa.binary()))


def _side(table: pa.Table, name: str) -> pa.Array | None:
    return one_array(table.column(name)) if name in table.column_names else None


def _missing(side: pa.Array | None, n: int) -> npt.NDArray[np.bool_]:
    return np.ones(n, np.bool_) if side is None else np.asarray(side.is_null().to_numpy(zero_copy_only=False))


def _field(side: pa.Array | None, f: pa.Field, n: int) -> pa.Array:
    has_field = side is not None and side.type.get_field_index(f.name) >= 0
    field: pa.Array = pc.struct_field(side, f.name) if has_field else pa.nulls(n, f.type)
    return field
