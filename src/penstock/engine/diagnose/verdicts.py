"""How a judging step judges a row, for those who look at a flow from outside: row by row, window by window."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.core.time import FOREVER, micros
from penstock.engine.diagnose.trace import Moved, Times
from penstock.kernels.port import Fates
from penstock.plan import Layout, Step

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Judge:
    """A judging step. A row is a pair with each of its windows; where there are none, with itself."""

    layout: Layout | None  # fixed windows; None: an instant
    late: str
    allowed: int = 0
    may_correct: bool = False  # whether late="correct" is offered

    @classmethod
    def of(cls, step: Step) -> "Judge":
        judging = step.node.judging()
        assert judging, f"step {step.name} calls no row late"
        allowed = micros(judging.allowed) if judging.late == "correct" else 0
        return cls(judging.layout, judging.late, allowed, judging.corrects)

    def pairs(self, times: Times) -> tuple[Times, Times, Times]:
        """(number of the row, start of the window, end of the window) for all of them; without windows both are the row's time."""
        rows = np.arange(len(times))
        if self.layout is None:
            return rows, times, times
        outside = self.layout.outside(times)
        inside = rows if outside is None else rows[~outside]
        of, starts = self.layout.windows(self.layout.panes(times[inside]))
        return inside[of], starts, self.layout.ends(starts)

    def on_time(self, ends: Times, at: Times) -> Mask:
        """A fixed window takes a row when its end > W, every other step when t >= W."""
        return np.asarray(ends > at if self.layout else ends >= at)

    def corrects(self, ends: Times, at: Times) -> Mask:
        """Of the rows that are not on time."""
        if self.late != "correct":
            return np.zeros(len(ends), np.bool_)
        return self.on_time(ends + np.int64(self.allowed), at)

    def fates(self, ends: Times, at: Times) -> Fates:
        """How many pairs are on time, corrected and late."""
        on_time = self.on_time(ends, at)
        taken = int(np.count_nonzero(on_time))
        corrected = int(np.count_nonzero(~on_time & self.corrects(ends, at))) if self.late == "correct" else 0
        return Counter({"on time": taken, "corrected": corrected, "late": len(ends) - taken - corrected})

    def needed(self, ends: Times, of: Moved) -> Times:
        """Per pair, the least lateness with which it is on time; 0: any; FOREVER: none, for a mark calls it late."""
        least = np.maximum(of.moved - ends + (1 if self.layout else 0), 0)
        return np.where(self.on_time(ends, of.marked), least, FOREVER)
