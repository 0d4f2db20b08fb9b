"""What a record has beside its columns or value: key, headers, event time, partition; taken from what its producer says, else
from the row as the topic's settings want it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.arrow import values_in
from penstock.core.schema import TIMESTAMP
from penstock.log.intake.columns import Reasons, column_by_value, plain_column
from penstock.log.intake.partitioning import Numbers, Rule, partitions_by_key
from penstock.log.intake.text import flat, key_bytes, key_text
from penstock.log.port import TopicSpec

HEADERS_TYPE = pa.map_(pa.string(), pa.binary())

Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Given:
    """What a producer says beside the rows, one entry a row: each counts before what the topic's settings would take."""

    keys: Sequence[bytes | None] | None = None
    partitions: Sequence[int | None] | None = None
    headers: Sequence[Mapping[str, bytes] | None] | None = None
    times: Sequence[int | None] | None = None  # microseconds; for all rows or for none


@dataclass(frozen=True)
class Fields:
    """The rows being taken in: where each stood among those given, their fields by name, and the rows refused so far, by place
    among these rows."""

    spec: TopicSpec
    kept: Places
    given: Given
    values: Callable[[str], Any]  # a column (typed topics) or a list of JSON values (raw ones)
    bad: Reasons
    gone: Collection[int] = ()  # the rows that are deletes, by place among these rows: they need no time

    def said(self, entries: Sequence[Any] | None) -> list[Any] | None:
        """What the producer said for these rows; None if it said nothing at all."""
        if entries is None or entries.count(None) == len(entries):
            return None
        return [entries[i] for i in self.kept]


def keys_of(fields: Fields, names: Sequence[str]) -> pa.Array | None:
    """The key of each row; None where no row has one."""
    keys = _own_keys(fields, names) if names else None
    said = fields.said(fields.given.keys)
    if said is not None:
        given = pa.array(said, pa.binary())
        keys = given if keys is None else pc.coalesce(given, keys)
    return None if keys is None or keys.null_count == len(keys) else keys


def _own_keys(fields: Fields, names: Sequence[str]) -> pa.Array:
    if fields.spec.schema:
        return key_bytes(pa.table({name: fields.values(name) for name in names}), names)
    columns = [fields.values(name) for name in names]
    for t in (pa.string(), pa.int64()) if len(columns) == 1 else ():
        plain = plain_column(columns[0], t)
        if plain is not None:
            return key_bytes(pa.table({"key": plain}), "key")
    rows = (
        columns[0]
        if len(columns) == 1
        else [list(row) if any(v is not None for v in row) else None for row in zip(*columns, strict=True)]
    )
    return pa.array([key_text(value) for value in rows], pa.binary())


def headers_of(fields: Fields) -> pa.Array | None:
    """The headers of each row; None where no row has any."""
    said = fields.said(fields.given.headers)
    return None if said is None else pa.array([None if h is None else list(h.items()) for h in said], HEADERS_TYPE)


def times_of(fields: Fields) -> pa.Array | None:
    """The event times to store beside the rows; None where a column holds them, or the append time is meant."""
    name, said = fields.spec.time, fields.said(fields.given.times)
    if fields.spec.schema and name:
        _refuse_nulls(flat(fields.values(name)), name, fields)
        return None
    if said is not None:
        return pa.array(said, pa.int64()).cast(TIMESTAMP)
    return _json_times(fields, name) if name else None


def _json_times(fields: Fields, name: str) -> pa.Array:
    values, f = fields.values(name), pa.field(name, TIMESTAMP)
    times = plain_column(values, TIMESTAMP)
    if times is None:
        times = column_by_value(values, f, fields.bad)
    _refuse_nulls(times, name, fields)
    return times


def _refuse_nulls(times: pa.Array, name: str, fields: Fields) -> None:
    if times.null_count:
        for i in values_in(pc.indices_nonzero(times.is_null()), int):
            if i not in fields.gone:
                fields.bad.setdefault(i, f"column {name!r} wants timestamp, found null: it is the event time of the topic")


def partitions_of(fields: Fields, rule: Rule | None, keys: pa.Array | None) -> Places:
    """The partition of each row; rows that no partition fits are refused."""
    count, said = fields.spec.partitions, fields.said(fields.given.partitions)
    if said is None and rule is None:  # always one of the topic's
        return np.zeros(len(fields.kept), np.int64) if keys is None else partitions_by_key(keys, count)
    if said is not None and None not in said:
        numbers: Numbers = np.array(said, np.int64)
    elif rule:
        numbers = _by_rule(fields, rule)
    else:
        numbers = np.zeros(len(fields.kept), np.int64) if keys is None else partitions_by_key(keys, count)
    if said is not None and None in said:
        numbers = np.array([own if number is None else number for own, number in zip(numbers.tolist(), said, strict=True)])
    outside = (numbers < 0) | (numbers >= count)
    for i in np.flatnonzero(outside).tolist():
        fields.bad.setdefault(i, f"goes to partition {numbers[i]}; topic {fields.spec.name} has 0 to {count - 1}")
    return np.where(outside, 0, numbers).astype(np.int64)


def _by_rule(fields: Fields, rule: Rule) -> Numbers:
    rows = len(fields.kept)
    result = rule.evaluate(lambda name: _integers(fields, name))
    return np.broadcast_to(result, rows) if len(result) != rows else result


def _integers(fields: Fields, name: str) -> Numbers:
    """The whole numbers of a column; rows without one are refused, as the partition depends on it."""
    values = fields.values(name)
    column = flat(values).cast(pa.int64()) if fields.spec.schema else plain_column(values, pa.int64())
    if column is None:
        column = column_by_value(values, pa.field(name, pa.int64()), fields.bad)
    for i in values_in(pc.indices_nonzero(column.is_null()), int) if column.null_count else []:
        fields.bad.setdefault(i, f"column {name!r} wants long, found null: the partition depends on it")
    return np.asarray(column.fill_null(0).to_numpy(zero_copy_only=False), np.int64)
