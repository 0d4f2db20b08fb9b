"""Kinds of windows from outside: what there is to say of one that lies fixed in time is where its windows lie."""

from dataclasses import dataclass

import numpy as np

from penstock.flow.steps.kinds import Fixed
from penstock.plan import Facts, Layout, Meaning
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
