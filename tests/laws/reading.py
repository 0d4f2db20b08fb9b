"""Reads a source epoch by epoch, as an engine does: positions, running watermarks, the marks recorded, the frontier used."""

from collections.abc import Callable
from copy import copy

import numpy as np
import pyarrow as pa

from penstock.core.change import Op
from penstock.core.columns import APPEND_TIME, OP, POSITION, TIME, WATERMARK
from penstock.core.position import Position
from penstock.kernels.judging import Watermarks, watermarks

from .cases import SourceCut
from .law import hold
from .reference.log import EngineMark, Entry, Mark, Source
from .reference.values import NEVER

Stamp = Callable[..., Watermarks]
ROWS = pa.schema([("key", pa.string()), ("val", pa.int64()), (TIME, pa.int64()), (WATERMARK, pa.int64()), (POSITION, pa.binary())])


class Reading:
    """The place of a run in one source."""

    def __init__(self, source: Source, stamp: Stamp = watermarks, *, appended: bool = False) -> None:
        self.source, self._stamp = source, stamp
        more = [*([(OP, pa.int8())] if source.table else []), *([(APPEND_TIME, pa.int64())] if appended else [])]
        self._schema = pa.schema([*ROWS, *more])
        self.at: dict[int, int] = {}
        self.W: dict[int, int] = {}
        self.marks: list[EngineMark] = []
        self.used, self.implausible = NEVER, 0

    def copy(self) -> "Reading":
        other = copy(self)
        other.at, other.W, other.marks = dict(self.at), dict(self.W), list(self.marks)
        return other

    def epoch(self, cut: SourceCut) -> tuple[pa.Table, int]:
        """The rows of one epoch, and the F it uses."""
        self._open(cut)
        before = self.frontier()
        counts = {p: min(cut.counts[p], len(self.source.partitions[p]) - at) for p, at in self.at.items()}
        tables = [self._read(p, count) for p, count in counts.items() if count]
        after = self.frontier()
        known = {"headers": after, "previous": before, "older": self.used}[cut.age]
        self.used = max(self.used, known)
        hold(self.used <= after or self.source.table, "F beyond what is known", self.source.name)
        return pa.concat_tables(tables) if tables else self._schema.empty_table(), self.used

    def answered(self, mark: int) -> None:
        """Rows were answered from this table: every partition is marked, those first seen later too."""
        for p in self.at if mark > NEVER else ():
            self._mark(p, mark)
        self.used = max(self.used, mark)

    def frontier(self) -> int:
        return min(self.W.values(), default=NEVER)

    def _open(self, cut: SourceCut) -> None:
        for p in sorted(cut.see - self.at.keys()):
            self.at[p], self.W[p] = 0, NEVER
            self._mark(p, self.used)
        for p in self.at:
            busy = [self.W[q] for q in self.at if q != p and self.at[q]]
            if p in cut.idle and busy:
                self._mark(p, min(busy))
        for p, T in cut.marks:
            if p in self.at:
                self._mark(p, T)

    def _mark(self, p: int, T: int) -> None:
        self.marks.append(EngineMark(p, self.at[p], T))
        self.W[p] = max(self.W[p], T)

    def _read(self, p: int, count: int) -> pa.Table:
        begin = self.at[p]
        entries = self.source.partitions[p][begin : begin + count]
        rows = [(begin + k, e) for k, e in enumerate(entries) if isinstance(e, Entry)]
        marks = [(sum(isinstance(e, Entry) for e in entries[:k]), e.T) for k, e in enumerate(entries) if isinstance(e, Mark)]
        times, appended = (np.array([getattr(e, name) for _, e in rows], np.int64) for name in ("t", "app"))
        stamped = self._stamp(times, appended, self.W[p], self.source.future, self.source.lateness, marks)
        self.at[p], self.W[p] = begin + count, stamped.end
        self.implausible += int((~stamped.plausible).sum())
        return self._table(p, rows, stamped).filter(pa.array(stamped.plausible))

    def _table(self, p: int, rows: list[tuple[int, Entry]], stamped: Watermarks) -> pa.Table:
        at = [e.W if e.W is not None else int(w) for (_, e), w in zip(rows, stamped.at, strict=True)]
        positions = [e.pos or Position(self.source.name, p, offset).encode() for offset, e in rows]
        entries = [e for _, e in rows]
        columns = [[e.key for e in entries], [e.val for e in entries], [e.t for e in entries], at, positions]
        columns += [[Op.DELETE if e.val is None else Op.INSERT for e in entries]] if self.source.table else []
        columns += [[e.app for e in entries]] if APPEND_TIME in self._schema.names else []
        return pa.table(dict(zip(self._schema.names, columns, strict=True)), schema=self._schema)
