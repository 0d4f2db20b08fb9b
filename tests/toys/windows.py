"""Kinds of windows from outside: two that lie fixed in time say where they lie, one has a node and a kernel of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from penstock.flow.steps.kinds import Fixed, Kind, Sending
from penstock.kernels import registry
from penstock.kernels.windows.counts import CountKernel
from penstock.plan import Aggregate, Aggregating, Facts, Judging, Late, Layout, Meaning
from penstock.plan.layouts import Longs, Mask

HOUR = 3_600_000_000
DAY = 24 * HOUR


@dataclass(frozen=True)
class BusinessDays(Fixed, Layout):
    """A window for each day in UTC but those of the weekend, whose rows lie outside."""

    @property
    def layout(self) -> Layout:
        return self

    @property
    def kind(self) -> str:
        return "business days"

    def facts(self) -> Facts:
        yield "size", "a day, Monday to Friday"

    def meaning(self) -> Meaning:
        return {"is": "toy-business-days/1"}

    @property
    def single(self) -> bool:
        return True

    def panes(self, times: Longs) -> Longs:
        return times // DAY * DAY

    def outside(self, times: Longs) -> Mask | None:
        return np.asarray((times // DAY + 3) % 7 >= 5)  # 1970 began on a Thursday

    def ends(self, starts: Longs) -> Longs:
        return starts + DAY


@dataclass(frozen=True)
class Shifts(Fixed, Layout):
    """A window from each full hour on, `minutes` long: more than 60 and at most 120, so that neighbours overlap."""

    minutes: int

    @property
    def layout(self) -> Layout:
        return self

    @property
    def kind(self) -> str:
        return "shifts"

    def facts(self) -> Facts:
        yield "size", f"{self.minutes} minutes from each hour"

    def meaning(self) -> Meaning:
        return {"is": "toy-shifts/1", "minutes": self.minutes}

    @property
    def single(self) -> bool:
        return False

    @property
    def _over(self) -> int:
        """How far a window reaches into the next hour."""
        return (self.minutes - 60) * HOUR // 60

    def panes(self, times: Longs) -> Longs:
        hours = times // HOUR * HOUR
        return hours + np.where(times - hours < self._over, 0, self._over)

    def windows(self, panes: Longs) -> tuple[Longs, Longs]:
        hours = panes // HOUR * HOUR
        both = np.flatnonzero(panes - hours < self._over)
        return np.concatenate([np.arange(len(panes)), both]), np.concatenate([hours, hours[both] - HOUR])

    def ends(self, starts: Longs) -> Longs:
        return starts + HOUR + self._over


@dataclass(frozen=True)
class InPairs(Kind):
    """The first and second row of a key, the third and fourth, and so on, by time."""

    keyed: ClassVar[bool] = False

    def planned(self, by: tuple[str, ...], aggregates: tuple[Aggregate, ...], sending: Sending) -> Aggregating:
        return PairedRows(by, aggregates, sending.late)


@dataclass(frozen=True)
class PairedRows(Aggregating):
    family: ClassVar[str] = "toy-pairs"

    by: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    late: Late

    @property
    def kind(self) -> str:
        return "pairs of rows"

    def judging(self) -> Judging:
        return Judging(self.late)

    def closed(self, newest: Sequence[int], end: int) -> int:
        return end

    def meaning(self) -> Meaning:
        return {"is": "toy-pairs/1", **self.made(), "late": self.late}


def _paired(node: PairedRows, inputs: Sequence[pa.Schema], output: pa.Schema) -> CountKernel:
    return CountKernel(node.by, 2, node.aggregates, node.late, inputs[0], output)


registry.register("toy-pairs", _paired)
