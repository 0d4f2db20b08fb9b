"""Rows at the door of a topic: read, checked, given key, event time and partition, and put into the columns that the log stores."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.core.arrow import values_in
from penstock.core.change import Op
from penstock.core.columns import EVENT_TIME, HEADERS, KEY, OP, VALUE
from penstock.errors import BadInput, BadSchema
from penstock.log.intake.attributes import HEADERS_TYPE, Fields, Given, Places, headers_of, keys_of, partitions_of, times_of
from penstock.log.intake.checked import CheckedRows, RowCheck
from penstock.log.intake.codec import Decoded, Rejected, decode_json, decode_rows, make_decimals_exact, parse_objects
from penstock.log.intake.columns import Reasons
from penstock.log.intake.deletes import Gone, key_of, marked, named
from penstock.log.intake.partitioning import Rule
from penstock.log.intake.sizes import check_sizes, fits, row_sizes
from penstock.log.intake.text import flat, json_row
from penstock.log.port import TopicSpec

Columns = dict[str, pa.Array]

_NOTHING_GIVEN = Given()
_NOTHING_GONE: Gone = {}


@dataclass(frozen=True)
class Prepared:
    """Rows as the log stores them, checked, the partition of each, where each stood among those given, and the rows refused."""

    rows: CheckedRows
    partitions: Places
    kept: Places
    rejected: list[Rejected]

    def before_refused(self) -> "Prepared":
        """Only the rows before the first that was refused, and that one."""
        if not self.rejected:
            return self
        count = int(np.searchsorted(self.kept, self.rejected[0].index))
        return Prepared(self.rows.slice(0, count), self.partitions[:count], self.kept[:count], self.rejected[:1])

    def by_partition(self) -> Iterator[tuple[int, CheckedRows, Places]]:
        """Each partition that has rows: its number, its rows in the order given, and where they stood."""
        if len(self.partitions) and (self.partitions == self.partitions[0]).all():
            yield int(self.partitions[0]), self.rows, self.kept
            return
        for number in np.unique(self.partitions).tolist():
            places = np.flatnonzero(self.partitions == number)
            yield number, self.rows.take(places), self.kept[places]


class Intake:
    """What a topic does with the rows it is given: each is checked here once, and refused by itself with the reason. The values of
    a raw topic must be JSON objects if `objects` says so, or if the topic takes key, time or partition from their fields."""

    def __init__(self, spec: TopicSpec, *, objects: bool = False) -> None:
        self._spec, self._check = spec, RowCheck(spec)
        self._rule = Rule.of(spec.partition_by) if spec.partition_by else None
        self._keys = key_columns(spec)
        self._objects = objects or bool(spec.key or spec.time or spec.partition_by)
        self._reads = objects or spec.schema is not None  # what lines say, or else they are kept as they are
        if spec.schema:
            _check_columns(spec, self._keys, self._rule)

    def lines(self, values: Sequence[bytes], given: Given = _NOTHING_GIVEN, *, deletes: bool = False) -> Prepared:
        """Texts, one a row: JSON objects for a typed topic, stored as they are in a raw one. Lines that say so are deletes;
        `deletes`: all of them are, and hold keys."""
        refused = _too_long(values, self._spec.max_record) if deletes or self._reads or self._objects else {}
        gone = named(values, self._spec, refused) if deletes else marked(values) if self._reads else {}
        if not self._spec.schema:
            return self._raw(values, refused, given, gone)
        if not gone:
            return self._typed(decode_json(pa.array(values, pa.binary()), self._spec.schema), refused, given)
        objects = [gone.get(i, row) for i, row in enumerate(parse_objects(values, refused))] if not deletes else list(gone.values())
        make_decimals_exact(objects, values, self._spec.schema, refused)
        return self._typed(decode_rows(objects, self._spec.schema, refused, gone), {}, given, gone)

    def rows(self, rows: Sequence[Mapping[str, Any]], given: Given = _NOTHING_GIVEN, *, deletes: bool = False) -> Prepared:
        """Python rows: by the schema of a typed topic, as JSON text in a raw one. `deletes`: they hold keys, and are deletes."""
        gone = dict(enumerate(rows)) if deletes else {}
        if self._spec.schema:
            return self._typed(decode_rows(rows, self._spec.schema, None, gone), {}, given, gone)
        refused: Reasons = {}
        values = [b"" if deletes else _json_row(row, i, refused) for i, row in enumerate(rows)]
        too_long = _too_long(values, self._spec.max_record) if self._objects else {}
        return self._raw(values, too_long | refused, given, gone)

    def table(self, table: pa.Table, given: Given = _NOTHING_GIVEN) -> Prepared:
        """Arrow rows: the columns of a typed topic by name, or the `value` column of a raw one."""
        if self._spec.schema:
            fitted = fitted_table(table, self._spec)
            return self._typed(Decoded(fitted, np.arange(fitted.num_rows), []), {}, given)
        if table.schema.names != [VALUE]:
            raise BadSchema(
                f"topic {self._spec.name} is raw: it takes one column, {VALUE!r}, not {', '.join(table.schema.names)}",
                hint="give the topic a schema, or send JSON text in that column",
            )
        values = table.column(VALUE).cast(pa.binary())
        if values.null_count:
            raise BadSchema(
                f"column {VALUE!r} of topic {self._spec.name} must not be null, and {values.null_count:,} values are",
                hint="delete rows by their keys: producer.delete(key)",
            )
        return self.lines(values_in(values, bytes), given)

    def _typed(self, decoded: Decoded, refused: Reasons, given: Given, gone: Gone = _NOTHING_GONE) -> Prepared:
        refused = {r.index: r.reason for r in decoded.rejected} | refused
        own = {name: flat(decoded.table.column(name)) for name in decoded.table.schema.names}
        return self._prepared(own, decoded.kept, refused, given, own.__getitem__, gone)

    def _raw(self, values: Sequence[bytes], refused: Reasons, given: Given, gone: Gone) -> Prepared:
        objects: list[Mapping[str, Any]] = []
        if self._objects:
            objects = list(parse_objects([b"{}" if i in gone else value for i, value in enumerate(values)], refused))
            objects = [gone.get(i, row) for i, row in enumerate(objects)]
        if gone:
            given = replace(given, keys=self._keys_of_deletes(gone, given, len(values)))
        own: Columns = {VALUE: pa.array([None if i in gone else value for i, value in enumerate(values)], pa.binary())}
        return self._prepared(own, np.arange(len(values)), refused, given, lambda name: [row.get(name) for row in objects], gone)

    def _keys_of_deletes(self, gone: Gone, given: Given, count: int) -> list[bytes | None]:
        keys: list[bytes | None] = [None] * count if given.keys is None else list(given.keys)
        for i, fields in gone.items():
            keys[i] = key_of(fields, self._keys) if keys[i] is None else keys[i]
        return keys

    def _prepared(
        self, own: Columns, kept: Places, refused: Reasons, given: Given, values: Callable[[str], Any], gone: Gone
    ) -> Prepared:
        """Adds what the log stores beside the columns, and leaves out what was refused on the way."""
        bad = {i: refused[at] for i, at in enumerate(kept.tolist()) if at in refused} if refused else {}
        taken = {i for i, at in enumerate(kept.tolist()) if at in gone} if gone else set()
        fields = Fields(self._spec, kept, given, values, bad, taken)
        keys = keys_of(fields, self._keys)
        system = {KEY: keys, HEADERS: headers_of(fields), EVENT_TIME: times_of(fields)}
        if taken:
            self._refuse_nameless(own, keys, taken, bad)
            system |= {OP: _ops(len(kept), taken)} if self._spec.schema else {}
        columns = own | {name: column for name, column in system.items() if column is not None}
        self._refuse_large(columns, bad)
        partitions = partitions_of(fields, self._rule, keys)
        if bad:
            refused |= {int(kept[i]): reason for i, reason in bad.items()}
            good = np.delete(np.arange(len(kept)), list(bad))
            columns = {name: column.take(good) for name, column in columns.items()}
            partitions, kept = partitions[good], kept[good]
        return Prepared(self._check.assembled(columns), partitions, kept, [Rejected(i, refused[i]) for i in sorted(refused)])

    def _refuse_nameless(self, own: Columns, keys: pa.Array | None, taken: set[int], bad: Reasons) -> None:
        """A delete says which row is gone: by the topic's key columns, else by a key, else by any column at all."""
        columns = [own[name].is_null().to_pylist() for name in self._keys if self._spec.schema]
        others = [column.is_null().to_pylist() for column in own.values()] if self._spec.schema else []
        for i in sorted(taken):
            missing = [name for name, null in zip(self._keys, columns, strict=False) if null[i]]
            keyed = keys is not None and keys[i].is_valid
            if missing:
                bad.setdefault(i, f"a delete without {missing[0]!r}: it says which row is gone")
            elif not keyed and all(null[i] for null in others):
                bad.setdefault(i, "a delete that does not say which row is gone: give its key")

    def _refuse_large(self, columns: Columns, bad: Reasons) -> None:
        limit = self._spec.max_record
        batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
        if not fits(batch, limit):
            sizes = row_sizes(batch, limit)
            for i in np.flatnonzero(sizes > limit).tolist():
                bad.setdefault(i, _too_large(limit))


def raw_values(
    spec: TopicSpec, values: Sequence[bytes], keys: Sequence[bytes | None], headers: Sequence[Mapping[str, bytes]]
) -> Prepared:
    """Values for a raw topic of one partition that takes nothing from their fields; BadRow if one is too large."""
    columns = {
        VALUE: pa.array(values, pa.binary()),
        KEY: pa.array(keys, pa.binary()),
        HEADERS: pa.array([list(h.items()) for h in headers], HEADERS_TYPE),
    }
    rows, places = RowCheck(spec).assembled(columns), np.arange(len(values))
    check_sizes(spec, rows.batch)
    return Prepared(rows, np.zeros_like(places), places, [])


def key_columns(spec: TopicSpec) -> list[str]:
    """The columns or JSON fields that make the key: `user_id`, or several like `user_id, country`."""
    return [name.strip() for name in spec.key.split(",")] if spec.key else []


def arrow_table(given: Any) -> pa.Table:
    """Rows as Arrow has them, of whatever can be had so: a table, a batch, a DataFrame of pandas or Polars."""
    if isinstance(given, pa.Table):
        return given
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    try:
        if type(given).__module__.startswith("pandas."):
            return pa.Table.from_pandas(given, preserve_index=False)
        if hasattr(given, "__arrow_c_stream__"):
            return pa.table(given)
    except (pa.ArrowException, TypeError, ValueError) as wrong:
        raise BadSchema(f"cannot make an Arrow table of this {type(given).__name__}", str(wrong)) from wrong
    raise BadInput(
        f"cannot send a {type(given).__name__} as a table",
        hint="give a pyarrow.Table or a DataFrame of pandas or Polars; rows as dicts go with send()",
    )


def fitted_table(table: pa.Table, spec: TopicSpec) -> pa.Table:
    """The table with exactly the topic's columns: nullable ones may be missing, types are brought to the schema's without loss."""
    assert spec.schema
    strange = [name for name in table.schema.names if name not in spec.schema]
    if strange:
        raise BadSchema(f"topic {spec.name} has no column {strange[0]!r}", f"its columns are {', '.join(spec.schema.names)}")
    return pa.Table.from_arrays([_fitted(table, f, spec) for f in spec.schema], schema=spec.schema.arrow)


def _fitted(table: pa.Table, f: pa.Field, spec: TopicSpec) -> pa.ChunkedArray:
    column = table.column(f.name) if f.name in table.schema.names else pa.chunked_array([pa.nulls(table.num_rows, f.type)])
    try:
        column = column.cast(f.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as wrong:
        raise BadSchema(f"column {f.name!r} of topic {spec.name} cannot take these values", str(wrong)) from wrong
    if column.null_count and not f.nullable:
        raise BadSchema(f"column {f.name!r} of topic {spec.name} must not be null, and {column.null_count:,} values are")
    return column


def _ops(count: int, taken: set[int]) -> pa.Array:
    return pa.array([int(Op.DELETE) if i in taken else None for i in range(count)], pa.int8())


def _json_row(row: Mapping[str, Any], index: int, refused: Reasons) -> bytes:
    try:
        return json_row(row)
    except TypeError as wrong:
        refused[index] = f"cannot be written as JSON: {wrong.__cause__ or wrong}"
        return b"{}"


def _too_long(values: Sequence[bytes], limit: int) -> Reasons:
    """Texts that are not even parsed. What is stored of the others is measured as it will be stored."""
    if sum(map(len, values)) <= limit:
        return {}
    return {i: _too_large(limit) for i, value in enumerate(values) if len(value) > limit}


def _too_large(limit: int) -> str:
    return f"is larger than the record limit of the topic, {limit:,} bytes"


def _check_columns(spec: TopicSpec, keys: Sequence[str], rule: Rule | None) -> None:
    assert spec.schema
    for name in [*keys, *(rule.columns if rule else ())]:
        if name not in spec.schema:
            raise BadSchema(f"topic {spec.name} has no column {name!r}", f"its columns are {', '.join(spec.schema.names)}")
    for name in rule.columns if rule else ():
        if not pa.types.is_integer(spec.schema.type(name)):
            raise BadInput(
                f"the partition of topic {spec.name} cannot depend on {name!r}", "partition_by may use integer columns only"
            )


def check_settings(spec: TopicSpec) -> None:
    """Refuses key columns and a partition expression that the topic's rows could never follow."""
    Intake(spec)


__all__ = ["Given", "Intake", "Prepared", "check_settings", "fitted_table", "key_columns"]
