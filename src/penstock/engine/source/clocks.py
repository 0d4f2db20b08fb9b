"""The clocks of a stream's devices, set right while a range of one partition is read. What is learned is state of the source:
runs under the source's name, the partition being the bucket, decided with the epoch like any other."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.arrow import array_of, filled
from penstock.core.schema import TIMESTAMP
from penstock.engine.source.spec import ClockSpec
from penstock.kernels.clocks import Readings, correct, merged, recall
from penstock.kernels.port import Changes

TABLE = "clocks"

Times = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Fixed(NamedTuple):
    times: Times
    plausible: Mask
    columns: dict[str, pa.Array]  # what is added to the rows


class DeviceClocks:
    """What is known of the devices of one partition: from the epochs before, and from what was read since."""

    def __init__(self, spec: ClockSpec, runs: Sequence[pa.Table] = ()) -> None:
        self._spec, self._runs = spec, list(runs)
        self._learned: pa.Table | None = None

    def fix(self, table: pa.Table, happened: Times, alive: Mask, appended: Times) -> Fixed:
        """The next rows of the partition, in the order of the log."""
        fix, rule = self._spec.fix, self._spec.rule
        sent, timed = times_of(table, fix.sent)
        received, known = times_of(table, fix.received) if fix.received else (appended, np.ones(len(appended), np.bool_))
        devices = table.select(list(rule.by))
        learned = [] if self._learned is None else [self._learned]
        readings = Readings(devices, happened, sent, received, timed & known, alive, appended)
        made = correct(rule, readings, recall([*self._runs, *learned], rule.by, devices))
        self._learned = merged([*learned, made.state], rule.by)
        seconds = array_of(made.uncertainty / 1e6, absent=~made.sure)
        columns = {fix.corrected: array_of(made.times).cast(TIMESTAMP), fix.uncertainty: seconds}
        return Fixed(made.times, made.plausible, columns)

    def merge(self, table: str, runs: Sequence[pa.Table]) -> pa.Table:
        """Several runs of state as one."""
        return merged(runs, self._spec.rule.by)

    def changes(self) -> Changes:
        """What this range adds to the state."""
        return Changes({(TABLE, 0): self._learned} if self._learned is not None else {})


def times_of(table: pa.Table, name: str) -> tuple[Times, Mask]:
    """A column of timestamps as numbers, and where there are any."""
    column = table.column(name)
    numbers = column.cast(pa.int64())
    if not column.null_count:
        return np.asarray(numbers.to_numpy()), np.ones(len(column), np.bool_)
    return np.asarray(filled(numbers, 0).to_numpy()), np.asarray(column.is_valid().to_numpy())
