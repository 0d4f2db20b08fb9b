"""Changes of PostgreSQL's tables as the port has them: values as JSON, a change of the key as a delete and a create."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.capture.port import CREATE, DELETE, UNKNOWN, UPDATE, Changes, Flags, Places, TableFacts, Unchanged
from penstock.capture.postgres.decode.changes import NO_OLD, OLD_KEY, OLD_ROW, Column, TableChanges
from penstock.capture.postgres.decode.messages import Relation
from penstock.capture.postgres.values.json_values import json_objects, json_values
from penstock.capture.postgres.values.types import PgType, Types, ddl_columns, ddl_type
from penstock.core.arrow import array_of, chosen, coalesced, filled

LookUp = Callable[[Sequence[pa.Array], Sequence[str], Places], Mapping[int, Mapping[str, str]]]
KeyOf = Callable[[Relation], Sequence[str]]  # the names of the columns that are a table's key


@dataclass(frozen=True)
class Shape:
    """A table as it is for some changes."""

    names: tuple[str, ...]
    types: tuple[PgType, ...]
    modifiers: tuple[int, ...]
    key: tuple[int, ...]  # which columns

    @property
    def facts(self) -> TableFacts:
        typed = [
            (name, ddl_type(of_type, modifier))
            for name, of_type, modifier in zip(self.names, self.types, self.modifiers, strict=True)
        ]
        return TableFacts(ddl_columns(typed), tuple(self.names[i] for i in self.key))


def shape_of(relation: Relation, types: Types, key_of: KeyOf) -> Shape:
    names = tuple(column.name for column in relation.columns)
    found = types.all(column.type for column in relation.columns)
    key = tuple(names.index(name) for name in key_of(relation))
    modifiers = tuple(column.modifier for column in relation.columns)
    return Shape(names, tuple(found[column.type] for column in relation.columns), modifiers, key)


def converted(changes: TableChanges, shape: Shape, transaction: Places, look_up: LookUp | None = None) -> Changes:
    """The same changes; transaction: which of the batch's each belongs to. look_up: columns that were not sent, by the keys of all
    changes and the rows that are wanted."""
    old, new = changes.old != NO_OLD, changes.op != DELETE
    changes = with_whole_keys(changes, shape.key)
    before, after = _json(changes.before, shape, old), _json(changes.after, shape, new)
    keys_before, keys_after = _keys(before, shape, old), _keys(after, shape, new)
    moved = _moved(changes, keys_before, keys_after)
    rows_before = chosen(
        array_of(changes.old == OLD_ROW),
        json_objects(shape.names, before, array_of(old)),
        chosen(array_of(changes.old == OLD_KEY), keys_before, pa.nulls(len(changes), pa.utf8())),
    )
    rows_after = json_objects(shape.names, after, array_of(new))
    keys = chosen(array_of(new), keys_after, keys_before)
    table = (changes.relation.schema or "pg_catalog", changes.relation.table)
    found = Changes(table, changes.op, keys, rows_before, rows_after, transaction, changes.index)
    places = np.repeat(np.arange(len(moved)), 1 + moved)
    found = _with_moves(found, moved, keys_before, places) if moved.any() else found
    return replace(found, unchanged=_unchanged(changes, shape, places, found.op != DELETE, look_up))


def _unchanged(changes: TableChanges, shape: Shape, places: Places, new: Flags, look_up: LookUp | None) -> Unchanged | None:
    """What was not sent. places: the change that each has come from."""
    flags = {
        name: column.unchanged[places] & new
        for name, column in zip(shape.names, changes.after, strict=True)
        if column.unchanged.any()
    }
    if not flags or look_up is None:
        return None
    keys = [changes.after[i].values.take(places) for i in shape.key]
    return Unchanged(flags, partial(look_up, keys, list(flags)))


def with_whole_keys(changes: TableChanges, key: Sequence[int]) -> TableChanges:
    """The same, with large keys that stayed as they were: those are sent with the row before alone."""
    if not any(changes.after[i].unchanged.any() for i in key):
        return changes
    after = list(changes.after)
    for i in key:
        values = coalesced(after[i].values, changes.before[i].values)
        after[i] = Column(values, after[i].unchanged & np.asarray(values.is_null().to_numpy(zero_copy_only=False)))
    return replace(changes, after=tuple(after))


def _json(columns: Sequence[Column], shape: Shape, present: Flags) -> list[pa.Array]:
    if not present.any():
        return [pa.nulls(len(present), pa.utf8())] * len(columns)
    return [_values(column, of_type) for column, of_type in zip(columns, shape.types, strict=True)]


def _values(column: Column, of_type: PgType) -> pa.Array:
    values = json_values(column.values, of_type)
    return chosen(array_of(column.unchanged), pa.scalar(UNKNOWN), values) if column.unchanged.any() else values


def _keys(values: Sequence[pa.Array], shape: Shape, present: Flags) -> pa.Array:
    return json_objects([shape.names[i] for i in shape.key], [values[i] for i in shape.key], array_of(present))


def _moved(changes: TableChanges, before: pa.Array, after: pa.Array) -> Flags:
    """Which updates have changed the key."""
    if not (changes.old[changes.op == UPDATE] != NO_OLD).any():
        return np.zeros(len(changes), np.bool_)
    differ: Flags = filled(pc.not_equal(before, after), False).to_numpy(zero_copy_only=False)
    moved: Flags = differ & (changes.op == UPDATE)
    return moved


def _with_moves(changes: Changes, moved: Flags, keys_before: pa.Array, places: Places) -> Changes:
    """A change of the key as two changes."""
    second = np.r_[False, places[1:] == places[:-1]]
    first = moved[places] & ~second
    nothing = pa.nulls(len(places), pa.utf8())
    op = np.where(first, np.uint8(DELETE), np.where(second, np.uint8(CREATE), changes.op[places]))
    return Changes(
        changes.table,
        op,
        chosen(array_of(first), keys_before.take(places), changes.key.take(places)),
        chosen(array_of(second), nothing, changes.before.take(places)),
        chosen(array_of(first), nothing, changes.after.take(places)),
        changes.transaction[places],
        changes.index[places],
    )
