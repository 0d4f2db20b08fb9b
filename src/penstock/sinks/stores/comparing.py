"""A store compared with what it should hold: by checksums of ranges of keys, down to the rows that differ, and how."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.arrow import table_of, values_in
from penstock.core.checksums import Hashes
from penstock.core.columns import POSITION, TIME
from penstock.sinks.port import SinkSpec
from penstock.sinks.stores.content import Content, key_of
from penstock.sinks.stores.hashing import RowHashes, checksums, comparable, hashes_of
from penstock.sinks.stores.keys import keys_of
from penstock.sinks.stores.port import Changes

SHOWN = 20  # differences that are told one by one
_LONGEST = 200  # characters of a value that are shown

Kind = Literal["missing", "extra", "different"]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ColumnDifference:
    """A column of a row that differs: both values as text, long ones cut."""

    name: str
    log: str
    store: str


@dataclass(frozen=True)
class Difference:
    """missing: the store lacks the row; extra: the log has no such row."""

    kind: Kind
    key: str
    columns: Sequence[ColumnDifference] = ()


@dataclass
class Compared:
    """What a comparison has found. unsettled: rows that differ, and were written while the store was read."""

    rows: int = 0  # of the store
    expected: int = 0
    ranges: int = 0
    ranges_apart: int = 0  # whose checksums differ
    missing: int = 0
    extra: int = 0
    different: int = 0
    unsettled: int = 0
    shown: list[Difference] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        return not (self.missing or self.extra or self.different)


class Comparison:
    """Of one sink. by_key: only whether keys are there, as where a store keeps the row that it has. forgets: rows of the store may
    go by themselves. touched: keys that were written meanwhile."""

    def __init__(
        self, content: Content, by_key: bool = False, forgets: bool = False, touched: pa.Array | None = None, at: int = -1
    ) -> None:
        self.at = at  # the epoch that the store had
        self._content, self._spec, self._by_key, self._forgets = content, content.spec, by_key, forgets
        self._touched: Hashes = np.empty(0, np.uint64) if touched is None else np.unique(hashes_of(touched))
        self._unlike: list[tuple[pa.Table, Hashes, Flags]] = []  # rows of the store: their keys, and which the log has too
        self._doubled: list[tuple[pa.Table, Hashes]] = []  # rows of the store whose key stood there before
        self.found = Compared()
        self.changes = Changes(_empty(self._spec), _empty(self._spec))

    def run(self, stored: Iterable[pa.Table]) -> Compared:
        """Compares, and notes in `changes` what the store lacks and what it has beyond. Without a key nothing can be taken out."""
        rows = iter(stored)
        first = next(rows, None)
        columns = [name for name in self._spec.schema.names if first is None or name in first.column_names]
        named = bool(self._spec.key) or bool(key_of(self._spec)) or (first is not None and POSITION in first.column_names)
        hashing = RowHashes(self._spec, tuple(columns), named, self._by_key)
        expected = [hashing.of(part.put) for part in self._content.parts()]
        keys, at, counts = np.unique(np.concatenate([k for k, _ in expected]), return_index=True, return_counts=True)
        values = np.concatenate([v for _, v in expected])[at]
        seen, sums = np.zeros(len(keys), np.int64), checksums([])
        for table in chain([first] if first is not None else [], rows):
            ours, theirs = self._matched(hashing, table, keys, values, seen)
            sums += checksums([(ours, theirs)])
        self._tell(expected, sums)
        lacking = np.maximum(0, counts - seen) if not named else (seen == 0).astype(np.int64)
        if self._unlike or lacking.any():
            self._missing(hashing, keys, lacking)
        self._tell_doubled(hashing)
        if not named:
            self.found.extra += int(np.maximum(0, seen - counts).sum())
        return self.found

    def _matched(
        self, hashing: RowHashes, table: pa.Table, keys: Hashes, values: Hashes, seen: npt.NDArray[np.int64]
    ) -> tuple[Hashes, Hashes]:
        ours, theirs = hashing.of(table)
        self.found.rows += table.num_rows
        at = np.minimum(np.searchsorted(keys, ours), max(0, len(keys) - 1))
        there = keys[at] == ours if len(keys) else np.zeros(len(ours), np.bool_)
        if hashing.named and len(keys):
            self._note_doubled(table, ours, there, seen[at] > 0)
        np.add.at(seen, at[there], 1)
        same = there.copy()
        same[there] = values[at[there]] == theirs[there]
        if not same.all():
            which = np.flatnonzero(~same)
            self._unlike.append((table.take(which), ours[which], there[which]))
        return ours, theirs

    def _note_doubled(self, table: pa.Table, ours: Hashes, there: Flags, before: Flags) -> None:
        """A key tells rows apart; not every store sees to that."""
        again = np.ones(len(ours), np.bool_)
        again[np.unique(ours, return_index=True)[1]] = False
        if (doubled := there & (again | before)).any():
            self._doubled.append((table.filter(pa.array(doubled)), ours[doubled]))

    def _tell_doubled(self, hashing: RowHashes) -> None:
        for table, keys in self._doubled:
            settled = ~np.isin(keys, self._touched)
            self.found.unsettled += int((~settled).sum())
            self.found.extra += int(settled.sum())
            self._show(table, settled, hashing, "extra")

    def _tell(self, expected: Sequence[tuple[Hashes, Hashes]], sums: Hashes) -> None:
        wanted = checksums(expected)
        self.found.expected = sum(len(keys) for keys, _ in expected)
        self.found.ranges, self.found.ranges_apart = len(sums), int((wanted != sums).sum())

    def _missing(self, hashing: RowHashes, keys: Hashes, lacking: npt.NDArray[np.int64]) -> None:
        """Goes once more over what should be there: for the rows that are missing, or other ones."""
        other = _Suspects.of(self._unlike)
        put: list[pa.Table] = []
        for part in self._content.parts():
            hashes, _ = hashing.of(part.put)
            at = np.minimum(np.searchsorted(keys, hashes), max(0, len(keys) - 1))
            short = lacking[at] > 0 if len(keys) and not self._forgets else np.zeros(len(hashes), np.bool_)
            wrong = other.differ(part.put, hashes, hashing)
            settled = ~np.isin(hashes, self._touched)
            self.found.unsettled += int(((short | wrong) & ~settled).sum())
            if hashing.named:
                self.found.missing += int((short & settled).sum())
                self.found.different += int((wrong & settled).sum())
                put.append(part.put.filter(pa.array((short | wrong) & settled)))
            else:
                put.append(self._short_of(part.put, hashes, keys, lacking))
            self._show(part.put, short & settled, hashing)
        self._changed(hashing, put)

    def _short_of(self, rows: pa.Table, hashes: Hashes, keys: Hashes, lacking: npt.NDArray[np.int64]) -> pa.Table:
        """Rows that nothing tells apart: as many of each as are lacking."""
        if not len(keys):
            return rows.slice(0, 0)
        order = np.argsort(hashes, kind="stable")
        alike, starts = np.unique(hashes[order], return_index=True)
        number = np.arange(len(order)) - starts[np.searchsorted(alike, hashes[order])]  # among those that are alike
        wanted = order[number < lacking[np.searchsorted(keys, hashes[order])]]
        np.subtract.at(lacking, np.searchsorted(keys, hashes[wanted]), 1)
        self.found.missing += len(wanted)
        return rows.take(wanted)

    def _changed(self, hashing: RowHashes, put: Sequence[pa.Table]) -> None:
        gone = [_empty(self._spec)]
        rows = pa.concat_tables([_empty(self._spec), *put])
        for table, keys, there in self._unlike:
            settled = ~np.isin(keys, self._touched)
            extra = ~there & settled
            self.found.unsettled += int((~there & ~settled).sum())
            self.found.extra += int(extra.sum())
            self._show(table, extra, hashing, "extra")
            if hashing.named:
                gone.append(_as_gone(table.filter(pa.array(extra)), self._spec))
                self._show_columns(table.filter(pa.array(there & settled)), rows, hashing)
        self.changes = Changes(rows, pa.concat_tables(gone))

    def _show(self, rows: pa.Table, which: Flags, hashing: RowHashes, kind: Kind = "missing") -> None:
        left = max(0, SHOWN - len(self.found.shown))
        chosen = rows.take(np.flatnonzero(which)[:left])
        self.found.shown += [Difference(kind, key) for key in self._key_texts(chosen, hashing)]

    def _show_columns(self, stored: pa.Table, expected: pa.Table, hashing: RowHashes) -> None:
        left = max(0, SHOWN - len(self.found.shown))
        if not left or not stored.num_rows:
            return
        ours = dict(zip(hashing.of(expected)[0].tolist(), range(expected.num_rows), strict=True))
        for row, key in enumerate(hashing.of(stored)[0].tolist()[:left]):
            if key not in ours:
                continue
            here, there = expected.slice(ours[key], 1), stored.slice(row, 1)
            pairs = [(name, _shown(here, name, self._spec), _shown(there, name, self._spec)) for name in hashing.columns]
            apart = [ColumnDifference(*pair) for pair in pairs if pair[1] != pair[2]]
            self.found.shown.append(Difference("different", self._key_texts(here, hashing)[0], apart))

    def _key_texts(self, rows: pa.Table, hashing: RowHashes) -> list[str]:
        if hashing.named:
            return [key.decode(errors="replace") for key in values_in(keys_of(rows, self._spec.key), bytes)]
        texts = [[_shown(rows.slice(i, 1), name, self._spec) for name in hashing.columns] for i in range(rows.num_rows)]
        return [", ".join(f"{name}={text}" for name, text in zip(hashing.columns, row, strict=True))[:_LONGEST] for row in texts]


class _Suspects:
    """Rows of the store whose hashes are not those of the rows with their keys."""

    def __init__(self, rows: pa.Table | None, keys: Hashes) -> None:
        self._rows, self._order = rows, np.argsort(keys)
        self._keys = keys[self._order]

    @classmethod
    def of(cls, unlike: Sequence[tuple[pa.Table, Hashes, Flags]]) -> "_Suspects":
        found = [(table.filter(pa.array(there)), keys[there]) for table, keys, there in unlike if there.any()]
        if not found:
            return cls(None, np.empty(0, np.uint64))
        return cls(pa.concat_tables([table for table, _ in found]), np.concatenate([keys for _, keys in found]))

    def differ(self, rows: pa.Table, keys: Hashes, hashing: RowHashes) -> Flags:
        """Which rows say something else than those of the store; the last digits of doubles are nothing else."""
        wrong = np.isin(keys, self._keys)
        if self._rows is None or not wrong.any() or not hashing.named:
            return wrong
        stored = self._rows.take(self._order[np.searchsorted(self._keys, keys[wrong])])
        wrong[wrong] = ~hashing.alike(rows.filter(pa.array(wrong)), stored)
        return wrong


def _shown(row: pa.Table, name: str, spec: SinkSpec) -> str:
    (value,) = comparable(row[name], spec.schema.type(name)).to_pylist()
    text = "null" if value is None else value.decode(errors="replace")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"


def _as_gone(rows: pa.Table, spec: SinkSpec) -> pa.Table:
    """Rows of the store as rows that are taken out: only their keys matter."""
    columns = {
        f.name: rows[f.name].cast(f.type) if f.name in spec.key else pa.nulls(rows.num_rows, f.type) for f in spec.schema.arrow
    }
    positions = rows[POSITION] if POSITION in rows.column_names else pa.nulls(rows.num_rows, pa.binary())
    return table_of({**columns, TIME: pa.nulls(rows.num_rows, pa.int64()), POSITION: positions}, _empty(spec).schema)


def _empty(spec: SinkSpec) -> pa.Table:
    return pa.schema([*spec.schema.arrow, pa.field(TIME, pa.int64()), pa.field(POSITION, pa.binary())]).empty_table()
