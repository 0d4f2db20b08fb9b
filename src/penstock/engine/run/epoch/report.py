"""What one epoch did and how long each of its steps took."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.core.time import FIRST
from penstock.engine.run.epoch.decision import Decision
from penstock.engine.run.epoch.open import Opened


@dataclass(frozen=True)
class Report:
    """One epoch, for people and for records."""

    flow: str
    decision: Decision = field(repr=False)
    rows: int
    seconds: float
    steps: dict[str, float]
    behind: int
    lag: float  # seconds between the clock and the append time of the oldest row not yet read

    @classmethod
    def of(cls, decision: Decision, opened: Opened, watch: "Stopwatch") -> "Report":
        return cls(decision.flow, decision, decision.rows, watch.total(), watch.steps, opened.behind, _lag(opened))


class Stopwatch:
    """Seconds of each step of an epoch, one after the other."""

    def __init__(self) -> None:
        self.steps: dict[str, float] = {}
        self._started = self._lap = time.perf_counter()

    def lap(self, step: str, parts: Mapping[str, float] | None = None) -> None:
        """The step ends now; parts: what tasks say of it."""
        now = time.perf_counter()
        self.steps[step] = now - self._lap
        self.steps |= {f"{step}.{part}": seconds for part, seconds in (parts or {}).items()}
        self._lap = now

    def total(self) -> float:
        return time.perf_counter() - self._started


def _lag(opened: Opened) -> float:
    waiting = [
        f.appended
        for place, frames in opened.frames.items()
        for f in frames
        if f.count and f.appended > FIRST and f.end > opened.sources[place[0]].partitions[place[1]].next
    ]
    return max(0.0, (opened.clock - min(waiting)) / 1e6) if waiting else 0.0
