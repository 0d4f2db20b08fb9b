"""Values that a change left as they were and that the database did not send, filled in: from an earlier change of the same row in
the batch, else from the row's last record in our own log, else from the database as it is now.

What the database says now may be newer than the change: then a change that is still to come brings it, too. Where the row is gone,
as a delete is still to come, the field is left out. No record ever says something else instead of a value."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from penstock.capture.port import CREATE, DELETE, UNKNOWN, Changes, Places, Table, Unchanged
from penstock.capture.writing.last_records import LoggedRows, Written
from penstock.core.arrow import array_of

Values = dict[str, str]  # of columns, as JSON


class UnchangedValues:
    """Fills them in. flat: the records are rows without an envelope."""

    def __init__(self, logged: LoggedRows, flat: bool) -> None:
        self._logged, self._flat = logged, flat

    def filled(self, changes: Iterable[Changes], written: Callable[[Table], Written]) -> list[Changes]:
        """The same changes, of which nothing is unknown. Where a table comes again its columns have changed in between: what was
        written of it does not count."""
        seen: set[Table] = set()
        found = []
        for each in changes:
            before = written(each.table) if each.unchanged and each.table not in seen else None
            found.append(self._filled(each, each.unchanged, before) if each.unchanged else each)
            seen.add(each.table)
        return found

    def _filled(self, changes: Changes, unchanged: Unchanged, written: Written | None) -> Changes:
        filling = _Filling(changes, unchanged)
        if written:
            alone = filling.without_earlier()
            for row, value in zip(alone.tolist(), self._values(changes, filling.rows_before(alone), written), strict=True):
                filling.learn(row, _row_in(value, self._flat))
        filling.ask(filling.without_earlier())
        filling.take_over()
        return replace(changes, after=filling.after(), unchanged=None)

    def _values(self, changes: Changes, rows: Places, written: Written) -> list[bytes | None]:
        return self._logged.values(changes.table, changes.key.take(rows), written)


@dataclass
class _Filling:
    """Changes of one table while they are filled in. A create with something unknown stands behind the delete of its old key."""

    changes: Changes
    unchanged: Unchanged
    rows: Places = field(init=False)  # those with something unknown
    earlier: Places = field(init=False)  # of each of them: the last change of the same row before it; -1: none

    def __post_init__(self) -> None:
        flags = np.logical_or.reduce(list(self.unchanged.columns.values()))
        self.rows = np.flatnonzero(flags)
        self.earlier = _previous(self.changes.key)[self.rows_before(self.rows)]
        self._wanted = {row: [name for name, of in self.unchanged.columns.items() if of[row]] for row in self.rows.tolist()}
        self._found: dict[int, Values] = {row: {} for row in self._wanted}

    def rows_before(self, rows: Places) -> Places:
        """Those whose key tells which row it was before."""
        before: Places = rows - (self.changes.op[rows] == CREATE)
        return before

    def without_earlier(self) -> Places:
        """Rows of which no earlier change is here and something is still unknown."""
        alone = self.rows[self.earlier < 0]
        return alone[[self._lacks(row) for row in alone.tolist()]] if len(alone) else alone

    def learn(self, row: int, values: Mapping[str, Any]) -> None:
        """What an earlier record of this row had."""
        self._found[row] |= {name: orjson.dumps(values[name]).decode() for name in self._wanted[row] if name in values}

    def ask(self, rows: Places) -> None:
        """The database itself."""
        for row, values in self.unchanged.current(rows).items() if len(rows) else ():
            self._found[row] |= {
                name: values[name] for name in self._wanted[row] if name in values and name not in self._found[row]
            }

    def take_over(self) -> None:
        """From the changes before, one behind the other."""
        known: dict[int, Mapping[str, Any]] = {}
        for row, before in zip(self.rows.tolist(), self.earlier.tolist(), strict=True):
            if before >= 0 and self.changes.op[before] != DELETE:
                if before not in known:
                    known[before] = orjson.loads(self._text(before))
                self.learn(row, known[before])
        rest = self.rows[self.earlier >= 0]
        self.ask(rest[[self._lacks(row) for row in rest.tolist()]] if len(rest) else rest)

    def after(self) -> pa.Array:
        if not len(self.rows):
            return self.changes.after
        mask = np.zeros(len(self.changes), np.bool_)
        mask[self.rows] = True
        texts = pa.array([self._text(row) for row in self.rows.tolist()], pa.utf8())
        filled: pa.Array = pc.replace_with_mask(self.changes.after, array_of(mask), texts)
        return filled

    def _lacks(self, row: int) -> bool:
        return len(self._found[row]) < len(self._wanted[row])

    def _text(self, row: int) -> str:
        """The row after the change, with what is known by now."""
        text: str = self.changes.after[row].as_py()
        return _spliced(text, self._wanted[row], self._found[row]) if row in self._found else text


def _previous(keys: pa.Array) -> Places:
    """For each row the last one before it that has the same key; -1 if there is none."""
    codes = np.asarray(keys.dictionary_encode().indices)
    order = np.argsort(codes, kind="stable")
    same = codes[order[1:]] == codes[order[:-1]]
    previous = np.full(len(keys), -1, np.int64)
    previous[order[1:][same]] = order[:-1][same]
    return previous


def _row_in(value: bytes | None, flat: bool) -> Mapping[str, Any]:
    """The row that a record tells; empty if it tells none."""
    if value is None:
        return {}
    told = orjson.loads(value)
    return (told if flat else told["after"]) or {}


def _spliced(text: str, names: Sequence[str], values: Mapping[str, str]) -> str:
    """An object in which these values, in their order, are unknown, with those that are known; the others are left out."""
    first, *rest = text.split(UNKNOWN)
    made = first
    for name, part in zip(names, rest, strict=True):
        if name in values:
            made += values[name] + part
            continue
        made = made.removesuffix(orjson.dumps(name).decode() + ":")
        made = made.removesuffix(",") + part if made.endswith(",") else made + part.removeprefix(",")
    return made
