"""Rows that a topic takes, checked once: only the checks of this room make `CheckedRows`, and a log stores them as they are."""

from collections.abc import Mapping
from dataclasses import InitVar, dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.columns import EVENT_TIME
from penstock.core.time import FIRST, LAST, NEVER, text
from penstock.errors import BadRow
from penstock.log.intake.fitting import conformed
from penstock.log.intake.sizes import check_sizes
from penstock.log.intake.stored_rows import LEFT_OUT_IF_NULL, SYSTEM, physical
from penstock.log.port import TopicSpec

_CHECKS = object()  # only the checks below know it
_BITS = {f.name: 1 << bit for bit, f in enumerate(SYSTEM)}
_LEFT_OUT = sum(_BITS[name] for name in LEFT_OUT_IF_NULL)

Times = npt.NDArray[np.int64]


@dataclass(frozen=True)
class CheckedRows:
    """Rows as a topic of these settings stores them: its columns and types, no null where none may be, no row over the record
    limit, times of the years 1 to 9999. `times` is None where the append time is their event time, and has NEVER where it is that
    of a row."""

    spec: TopicSpec
    batch: pa.RecordBatch
    system: int  # a bit for each of SYSTEM
    times: Times | None
    least: int
    greatest: int
    untimed: bool  # some rows, deletes, have no time of their own
    made_by: InitVar[object]

    def __post_init__(self, made_by: object) -> None:
        if made_by is not _CHECKS:
            raise TypeError("CheckedRows are made by checking rows: RowCheck.checked or Intake")

    @property
    def num_rows(self) -> int:
        return int(self.batch.num_rows)

    def slice(self, start: int, count: int | None = None) -> "CheckedRows":
        """Some of these rows, as they stand."""
        return _passed(self.spec, self.batch.slice(start, count), self.system)

    def take(self, places: npt.NDArray[np.int64]) -> "CheckedRows":
        """The rows at these places, in this order."""
        return _passed(self.spec, self.batch.take(places), self.system)


class RowCheck:
    """Checks rows for one topic. Made once for its settings: most batches have just the topic's columns, and those pass quickly."""

    def __init__(self, spec: TopicSpec) -> None:
        self._spec = spec
        self._user = physical(spec.schema)
        self._needed = [f.name for f in self._user if not f.nullable or f.name == spec.time]
        self._stored = {0: self._user}

    def checked(self, rows: pa.RecordBatch | CheckedRows) -> CheckedRows:
        """The rows as they will be stored; BadSchema or BadRow if they do not fit the topic. What was checked under these settings
        is not checked again."""
        if isinstance(rows, CheckedRows):
            if rows.spec is self._spec or rows.spec == self._spec:
                return rows
            rows = rows.batch
        if rows.schema.equals(self._user) and not any(rows.column(name).null_count for name in self._needed):
            found = _passed(self._spec, rows, 0)
        else:
            found = self.assembled(conformed(self._spec, rows, self._user))
        check_sizes(self._spec, found.batch)
        return found

    def as_stored(self, batch: pa.RecordBatch, system: int) -> CheckedRows:
        """A batch that its maker has put together just as the topic stores it: columns in their order, types, nulls, sizes."""
        return _passed(self._spec, batch, system)

    def assembled(self, columns: Mapping[str, pa.Array]) -> CheckedRows:
        """The rows of these columns, which their maker has checked: types, nulls and sizes."""
        system = sum([_BITS[name] for name in columns if name in _BITS])
        if system not in self._stored:
            self._stored[system] = physical(self._spec.schema, system)
        wanted = self._stored[system]
        return _passed(self._spec, pa.RecordBatch.from_arrays([columns[f.name] for f in wanted], schema=wanted), system)


def _passed(spec: TopicSpec, batch: pa.RecordBatch, system: int) -> CheckedRows:
    """Rows that passed, without the system columns in which none of them has anything."""
    empty = _empty(batch, system) if system & _LEFT_OUT else 0
    if empty:
        system -= empty
        wanted = physical(spec.schema, system)
        batch = pa.RecordBatch.from_arrays([batch.column(f.name) for f in wanted], schema=wanted)
    times = _times(spec, batch)
    known = times if times is None else times[times > NEVER]
    if times is None or known is None or not len(known):
        return CheckedRows(spec, batch, system, None, NEVER, NEVER, False, _CHECKS)
    least, greatest = int(known.min()), int(known.max())
    if least < FIRST or greatest > LAST:
        wrong = text(least if least < FIRST else greatest)
        raise BadRow(f"a row for topic {spec.name} has a time outside the years 1 to 9999", wrong)
    return CheckedRows(spec, batch, system, times, least, greatest, len(known) < len(times), _CHECKS)


def _empty(batch: pa.RecordBatch, system: int) -> int:
    """The bits of the columns that are left out where all is null, and are."""
    there = [name for name in LEFT_OUT_IF_NULL if system & _BITS[name]]
    return sum([_BITS[name] for name in there if batch.column(name).null_count == batch.num_rows])


def _times(spec: TopicSpec, batch: pa.RecordBatch) -> Times | None:
    name = spec.time if spec.schema and spec.time else EVENT_TIME
    if name not in batch.schema.names:
        return None
    times = batch.column(name).view(pa.int64())
    return np.asarray((times.fill_null(NEVER) if times.null_count else times).to_numpy(), np.int64)


__all__ = ["CheckedRows", "RowCheck"]
