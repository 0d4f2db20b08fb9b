"""What a run says of itself: a line while it runs, and a line at the end."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from penstock.core.time import FOREVER, NEVER, moment
from penstock.engine.flows.ending import drained
from penstock.engine.run.driver import Driver
from penstock.engine.run.epoch.decision import Decision
from penstock.engine.run.epoch.report import Report
from penstock.kernels.windows.final import OPEN
from penstock.log.accounting import OFFSETS, ROWS, balanced
from penstock.plan import Plan

_STEPS_TOLD = 3


def clock_text(us: int) -> str:
    """A time for people: seconds, UTC."""
    if us <= NEVER:
        return "none yet"
    return "+∞ (ended)" if us >= FOREVER else moment(us).strftime("%Y-%m-%d %H:%M:%S")


def holder(decision: Decision, topics: Mapping[str, str]) -> tuple[int, str]:
    """The least watermark of these inputs, and the partition that has it."""
    held = [(p.watermark, f"{topics[name]}/{n}") for name in topics for n, p in decision.sources[name].partitions.items()]
    return min(held, default=(NEVER, "no input"))


def count(fates: Mapping[str, Mapping[str, int]], *which: str) -> int:
    return sum(counts.get(fate, 0) for counts in fates.values() for fate in which)


def late_rows(counts: Mapping[str, int]) -> int:
    """Rows that a step has called late; where windows overlap, those that one window at least refused."""
    return counts.get("late rows", 0) if "windows" in counts else counts.get("diverted", 0) + counts.get("ignored", 0)


def late_text(fates: Mapping[str, Mapping[str, int]], before: Mapping[str, Mapping[str, int]], flow: str) -> str:
    """How many rows came late since before, whatever number of windows refused each. Several steps may judge the same rows, and
    the books do not say which: then each step is named."""
    found = {step: late_rows(counts) - late_rows(before.get(step, {})) for step, counts in fates.items()}
    steps = sorted(((rows, step) for step, rows in found.items() if rows), key=lambda pair: (-pair[0], pair[1]))
    if not steps:
        return "0 rows late"
    where = f" (penstock fates {flow})"
    if len(steps) == 1:
        return f"{steps[0][0]:,} row{'' if steps[0][0] == 1 else 's'} late{where}"
    more = f" and {len(steps) - _STEPS_TOLD} more steps" if len(steps) > _STEPS_TOLD else ""
    return f"rows late: {', '.join(f'{rows:,} at {step}' for rows, step in steps[:_STEPS_TOLD])}{more}{where}"


def windows_open(plan: Plan, decision: Decision) -> tuple[int, int]:
    """How many windows are open, and until when the last of them is."""
    windows, last = 0, NEVER
    for step in plan.steps:
        judging = step.node.judging()
        if judging and judging.layout:
            layout, frontier = judging.layout, decision.frontiers.get(step.name, NEVER)
            slots = {r.slot for r in decision.state if (r.step, r.table) == (step.name, OPEN)}
            starts = np.unique(layout.windows(np.array(sorted(slots), np.int64))[1])
            ends = layout.ends(starts)
            windows += int(np.count_nonzero(ends > frontier))
            last = max([last, *ends[ends > frontier].tolist()])
    return windows, last


@dataclass
class Tally:
    """What one run of one flow did."""

    driver: Driver
    rows: int = 0
    epochs: int = 0
    seconds: float = 0.0
    before: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    ended: bool = False  # the input had been ended before this run

    def __post_init__(self) -> None:
        if self.driver.last:
            self.before = self.driver.last.fates
            self.ended = drained(self.driver.decisions, self.driver.last)

    def add(self, report: Report) -> None:
        self.rows += report.rows
        self.epochs += 1
        self.seconds += report.seconds

    def progress(self, report: Report) -> str:
        rate = report.rows / report.seconds if report.seconds else 0
        lag = f" · {report.behind:,} rows and {report.lag:.0f} s behind" if report.behind else ""
        return (
            f"{report.flow} · epoch {report.decision.epoch} · {report.rows:,} rows in {report.seconds:.2f} s ({rate:,.0f} rows/s)"
            f" · {self._watermark(report.decision)}{lag}"
        )

    def closing(self) -> str:
        """`read 60,001 rows · 3 rows late (penstock fates shop) · 0 dead · watermark …, held back by … · 1 window open until …`"""
        last = self.driver.last
        if not last:
            return "read 0 rows · nothing has come in yet"
        dead = count(last.fates, "dead", "implausible") - count(self.before, "dead", "implausible")
        parts = [
            f"read {self.rows:,} rows",
            late_text(last.fates, self.before, self.driver.plan.flow),
            f"{dead:,} dead" + (f" (penstock dead list {self.driver.plan.flow})" if dead else ""),
        ]
        parts.append(self._watermark(last))
        open_, until = windows_open(self.driver.plan, last)
        if open_:
            parts.append(
                f"{open_:,} window{'s' if open_ > 1 else ''} open until {clock_text(until)} (view show --open, run --drain)"
            )
        gone = count(last.fates, GONE) - count(self.before, GONE)
        if gone:
            parts.insert(1, f"{gone:,} offsets were gone (penstock fates {self.driver.plan.flow})")
        if self.ended and self.driver.streams:
            parts.append(f"its input was ended by --drain: new rows are late (penstock flow reopen {self.driver.plan.flow})")
        keys, cached, calls = (count(last.fates, fate) - count(self.before, fate) for fate in LOOKED_UP[:3])
        if keys:
            parts.append(f"{keys:,} keys looked up in {calls:,} call{'s' if calls != 1 else ''}, {cached:,} from cache")
        return " · ".join(parts)

    def _watermark(self, decision: Decision) -> str:
        if not self.driver.streams:
            return "tables alone, which have no watermark"
        time, place = holder(decision, self.driver.streams)
        return f"watermark {clock_text(time)}" + ("" if time >= FOREVER else f", held back by {place}")


def unaccounted(decision: Decision) -> dict[str, str]:
    """Sources whose offsets are not all told in the books, and what is wrong there. Decisions of 0.1 did not keep them."""
    wrong = {}
    for source, account in decision.accounts.items():
        rows = decision.fates.get(source, {}).get("in", 0)
        if not balanced(account) or account.get(ROWS, 0) > rows:
            wrong[source] = f"{account.get(OFFSETS, 0)} offsets read, {sum(account.values()) - account.get(OFFSETS, 0)} told"
    return wrong


GONE = "gone"  # offsets that were removed before they were read; not among the rows in
SETTLED = (  # rows
    *("filtered", "dead", "withdrawn", "implausible", "duplicate", "outside", "too old", "held", "passed"),
    *("answered", "unmatched", "version"),
)
LOOKED_UP = ("keys", "from cache", "calls", "failed calls")  # of lookups: not rows
BY_WINDOW = ", window by window"  # behind the name of a step whose windows overlap: its second line
VERDICTS = ("on time", "corrected", "diverted", "ignored")  # rows; where windows overlap, rows times windows


def balance(fates: Mapping[str, Mapping[str, int]]) -> Iterable[tuple[str, int, int]]:
    """Per step: rows in, and rows whose fate is known. The books balance when both are equal.

    Where windows overlap a row is judged by several: the step has a second line, of what was to be judged and what was."""
    for step, counts in fates.items():
        verdicts = sum(counts.get(f, 0) for f in VERDICTS)
        settled = sum(counts.get(f, 0) for f in SETTLED)
        if "judged" not in counts and "windows" not in counts:
            yield step, counts.get("in", 0), settled + verdicts
            continue
        yield step, counts.get("in", 0), settled + counts.get("judged", 0)
        yield f"{step}{BY_WINDOW}", counts.get("windows", 0), verdicts
