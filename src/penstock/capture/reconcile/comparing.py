"""One table compared with its topic: range by range of the source's keys, by hashes; what differs by hash is looked at exactly."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import polars as pl
import pyarrow as pa

from penstock.capture.port import Flags, Table
from penstock.capture.reconcile.exact import LogRows, column_differences, log_rows, same_row
from penstock.capture.reconcile.folding import Folded, View, folded
from penstock.capture.reconcile.hashing import Canonical, Hashes, checksum_of, hashes_of
from penstock.capture.reconcile.results import Difference, RangeDifference, ReconcileProgress, ReconcileReport, TableResult
from penstock.capture.reconcile.source import Described, SourceSnapshot
from penstock.capture.writing.envelopes import flat_key
from penstock.core.arrow import one_array

MANY = 20_000  # rows that differ as texts and are looked at one by one; if there are more, all are compared by what they mean
KEYS = 500_000  # that are looked for in one pass over the topic
_WHOLE = 1 << 64


class Mender(Protocol):
    """Takes what differs, of keys that nothing newer is known of."""

    def rows(self, table: Table, keys: pa.Array, rows: pa.Array) -> None:
        """The topic should say that these are the rows of these keys."""
        ...

    def gone(self, table: Table, keys: pa.Array) -> None:
        """The topic should say that these keys, given as it has them, are gone."""
        ...

    def flush(self) -> None:
        """Writes what was taken."""
        ...


class _TooMany(Exception):
    """More rows differ as texts than are looked at one by one."""


@dataclass
class _Range:
    first: bytes
    last: bytes
    rows: int
    checksum: int
    log_checksum: int
    bad: int = 0


@dataclass(frozen=True)
class _Rows:
    """Rows of one range, with their hashes."""

    number: int  # of the range
    keys: pl.Series  # as the topic has them
    texts: pl.Series
    key_hashes: Hashes
    row_hashes: Hashes
    given: pa.Array  # the keys as the capture's envelope takes them

    def taken(self, which: Flags) -> "_Rows":
        flags = pl.Series(which)
        return _Rows(
            self.number,
            self.keys.filter(flags),
            self.texts.filter(flags),
            self.key_hashes[which],
            self.row_hashes[which],
            self.given.filter(pa.array(which)),
        )

    def pairs(self) -> Iterator[tuple[bytes, bytes]]:
        return zip(self.keys.to_list(), self.texts.to_list(), strict=True)


@dataclass
class _Found:
    """What is known so far."""

    rows: int = 0
    checksum: int = 0
    ranges: list[_Range] = field(default_factory=list)
    count: int = 0
    missing: int = 0
    different: int = 0
    unsettled: int = 0
    shown: list[Difference] = field(default_factory=list)
    suspects: list[_Rows] = field(default_factory=list)  # rows that differ as texts
    details: list[_Rows] = field(default_factory=list)  # rows that differ, and are to be shown
    corrected: int = 0  # what the log's checksum lacks, as texts differ where rows do not


class TableComparison:
    """Compares one table. view_of: the topic as it is now; mender: takes what differs, None if nobody does."""

    def __init__(
        self,
        source: SourceSnapshot,
        table: Table,
        view_of: Callable[[], View],
        shown: int,
        report: ReconcileReport,
        mender: Mender | None = None,
    ) -> None:
        self._source, self._table, self._view_of, self._shown = source, table, view_of, shown
        self._report, self._mender = report, mender
        self._described: Described = source.describe(table)
        self._meaning = Canonical(self._described.columns)

    def run(self) -> TableResult:
        try:
            return self._compared(None)
        except _TooMany:
            if self._mender:
                self._mender.flush()
            return self._compared(self._meaning)

    def _compared(self, canonical: Canonical | None) -> TableResult:
        view = self._view_of()
        total = view.records
        log = folded(view, canonical, lambda done: self._report(ReconcileProgress("log", self._table, done, total)))
        matched, found = np.zeros(len(log.keys), np.bool_), _Found()
        for rows in self._rows(view.flat, canonical):
            self._compare(rows, log, matched, found, view, canonical is not None)
            self._report(ReconcileProgress("source", self._table, found.rows, max(found.rows, self._described.estimate)))
        extra = log.keys[~matched]
        if view.inexact:
            newer = log.has_newer(extra)
            found.unsettled += int(newer.sum())
            extra = extra[~newer]
        self._resolve(view, log, found)
        self._extras(view, log, extra, found)
        return self._result(view, log, found, len(extra))

    def _rows(self, flat: bool, canonical: Canonical | None) -> Iterator[_Rows]:
        for number, each in enumerate(self._source.ranges(self._table)):
            keys = pl.Series((flat_key(each.keys) if flat else each.keys).cast(pa.large_binary()))
            texts = pl.Series(each.rows.cast(pa.large_binary()))
            row_hashes = hashes_of(canonical.rows(texts) if canonical else texts)
            yield _Rows(number, keys, texts, hashes_of(keys), row_hashes, each.keys)

    def _compare(self, rows: _Rows, log: Folded, matched: Flags, found: _Found, view: View, final: bool) -> None:
        places, there = log.places(rows.key_hashes)
        same = there.copy()
        same[there] = log.rows[places[there]] == rows.row_hashes[there]
        matched[places[there]] = True
        checksum = checksum_of(rows.key_hashes, rows.row_hashes)
        found.rows, found.count = found.rows + len(rows.keys), found.count + 1
        found.checksum = (found.checksum + checksum) % _WHOLE
        if same.all():
            return
        unlike = ~same
        if view.inexact:
            newer = log.has_newer(rows.key_hashes)
            found.unsettled += int((unlike & newer).sum())
            unlike &= ~newer
        in_log = checksum_of(rows.key_hashes[there], log.rows[places[there]])
        found.ranges.append(_Range(rows.keys[0], rows.keys[-1], len(rows.keys), checksum, in_log))
        self._missing(rows.taken(unlike & ~there), log, found)
        self._different(rows.taken(unlike & there), log, found, final)

    def _missing(self, rows: _Rows, log: Folded, found: _Found) -> None:
        if not len(rows.keys):
            return
        found.missing += len(rows.keys)
        found.ranges[-1].bad += len(rows.keys)
        left = self._shown - len(found.shown)
        found.shown += [Difference("missing", key.decode()) for key in rows.keys.head(max(0, left)).to_list()]
        self._mend(rows, log)

    def _different(self, rows: _Rows, log: Folded, found: _Found, final: bool) -> None:
        if not len(rows.keys):
            return
        numbered = _Rows(len(found.ranges) - 1, rows.keys, rows.texts, rows.key_hashes, rows.row_hashes, rows.given)
        if not final:
            found.suspects.append(numbered)
            if sum(len(each.keys) for each in found.suspects) > MANY:
                raise _TooMany
            return
        self._differ(numbered, log, found)

    def _differ(self, rows: _Rows, log: Folded, found: _Found) -> None:
        """These rows differ in what they mean."""
        found.different += len(rows.keys)
        found.ranges[rows.number].bad += len(rows.keys)
        left = self._shown - sum(len(each.keys) for each in found.details)
        if left > 0:
            found.details.append(rows.taken(np.arange(len(rows.keys)) < left))
        self._mend(rows, log)

    def _mend(self, rows: _Rows, log: Folded) -> None:
        if self._mender is None or not len(rows.keys):
            return
        now = rows.taken(~log.has_newer(rows.key_hashes))
        self._mender.rows(self._table, now.given, _utf8(now.texts))

    def _resolve(self, view: View, log: Folded, found: _Found) -> None:
        """Looks at the rows that differ as texts, and at those that are to be shown."""
        looked = [*found.suspects, *found.details]
        if not looked:
            return
        self._report(ReconcileProgress("details", self._table))
        said = log_rows(view, np.concatenate([rows.key_hashes for rows in looked]))
        for rows in found.suspects:
            unlike = np.array([not same_row(self._meaning, text, said.get(key)) for key, text in rows.pairs()], np.bool_)
            self._differ(rows.taken(unlike), log, found)
            self._correct(rows.taken(~unlike), log, found)
        for rows in found.details:
            self._show(rows, said, found)

    def _correct(self, rows: _Rows, log: Folded, found: _Found) -> None:
        """Rows whose texts alone differ count as the source's."""
        here = checksum_of(rows.key_hashes, rows.row_hashes)
        lacking = here - checksum_of(rows.key_hashes, log.rows[log.places(rows.key_hashes)[0]])
        found.corrected += lacking
        found.ranges[rows.number].log_checksum = (found.ranges[rows.number].log_checksum + lacking) % _WHOLE

    def _show(self, rows: _Rows, said: LogRows, found: _Found) -> None:
        for key, text in rows.pairs():
            row = said.get(key)
            if row is None:
                found.shown.append(Difference("missing", key.decode()))
            else:
                found.shown.append(Difference("different", key.decode(), column_differences(self._described.columns, text, row)))

    def _extras(self, view: View, log: Folded, extra: Hashes, found: _Found) -> None:
        """Keys that the topic has and the source has not."""
        wanted = extra if self._mender else extra[: self._shown]
        for start in range(0, len(wanted), KEYS):
            self._report(ReconcileProgress("details", self._table, start, len(wanted)))
            part = wanted[start : start + KEYS]
            keys = pl.Series([key for key, row in log_rows(view, part).items() if row is not None], dtype=pl.Binary)
            left = max(0, self._shown - len(found.shown))
            found.shown += [Difference("extra", key.decode()) for key in keys.head(left).to_list()]
            if self._mender:
                now = keys.filter(pl.Series(~log.has_newer(hashes_of(keys))))
                self._mender.gone(self._table, _utf8(now))

    def _result(self, view: View, log: Folded, found: _Found, extra: int) -> TableResult:
        return TableResult(
            self._table,
            view.name,
            found.rows,
            len(log.keys),
            found.checksum,
            (log.checksum + found.corrected) % _WHOLE,
            found.count,
            [_told(each) for each in found.ranges if each.bad],
            found.missing,
            extra,
            found.different,
            found.shown[: self._shown],
            found.unsettled,
        )


def _told(each: _Range) -> RangeDifference:
    return RangeDifference(each.first.decode(), each.last.decode(), each.rows, each.checksum, each.log_checksum)


def _utf8(texts: pl.Series) -> pa.Array:
    return one_array(texts.to_arrow()).cast(pa.binary()).cast(pa.utf8())
