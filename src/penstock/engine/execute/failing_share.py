"""The limit of failing rows: a step on which most rows fail is a mistake in the flow, and stops it before the epoch is decided."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.engine.execute.failing import Sample, stopped
from penstock.engine.execute.program import result_step
from penstock.plan import Plan

LEAST = 1_000  # rows that must have failed before a share of them says anything

Fates = Mapping[str, Mapping[str, int]]


@dataclass
class FailingShare:
    """Of each step the rows of its last epochs, and how many of them failed: so many epochs that they have LEAST rows together.

    It is kept in memory. That a flow stops is no result, so a start may begin to count anew."""

    _recent: dict[str, deque[tuple[int, int]]] = field(default_factory=dict)  # step -> (rows in, dead), an epoch each

    def check(self, plan: Plan, fates: Fates, samples: Mapping[str, Sample]) -> None:
        """FailedRow if an epoch with these fates goes beyond the limit of the flow."""
        if plan.dead_limit is None:
            return
        steps = [s for s in plan.steps if s.name not in plan.sources]
        for step in [*steps, *(replace(s, name=result_step(s.name)) for s in steps)]:
            if not fates.get(step.name, {}).get("dead", 0):
                continue
            epochs = self._with(step.name, fates)
            rows, dead = sum(n for n, _ in epochs), sum(d for _, d in epochs)
            if dead >= LEAST and dead > plan.dead_limit * rows:
                why = f'{dead:,} of the last {rows:,} rows of step "{step.name}" failed'
                hint = (
                    f'mend the step; or let the flow go on: Flow("{plan.flow}", dead_limit=None). Nothing of this epoch was decided'
                )
                raise stopped(plan.flow, step, samples[step.name], why, hint)

    def decided(self, fates: Fates) -> None:
        """An epoch counts once it is decided."""
        for step in fates:
            self._recent[step] = self._with(step, fates)

    def _with(self, step: str, fates: Fates) -> deque[tuple[int, int]]:
        epochs = deque(self._recent.get(step, ()))
        epochs.append((fates[step].get("in", 0), fates[step].get("dead", 0)))
        while len(epochs) > 1 and sum(n for n, _ in epochs) - epochs[0][0] >= LEAST:
            epochs.popleft()
        return epochs
