"""A checker that catches nothing proves nothing: bugs planted in kernels and time, each caught within a few hundred cases."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from colliding import colliding
from penstock.core.columns import WATERMARK
from penstock.core.time import FOREVER, NEVER, micros
from penstock.engine.run.epoch import decide
from penstock.engine.run.epoch.answering import marks_on_tables
from penstock.kernels import judging
from penstock.kernels.alerts.rows import KNOWN, AlertKernel
from penstock.kernels.asof.enrich import EnrichKernel
from penstock.kernels.changes import SENT
from penstock.kernels.joins import interval as joins
from penstock.kernels.joins import probe, waiting
from penstock.kernels.joins.interval import JoinKernel
from penstock.kernels.joins.matches import Encounter, Matches
from penstock.kernels.joins.pairing import Output
from penstock.kernels.judging import Watermarks, watermarks
from penstock.kernels.memory import MemoryRunner, Ran
from penstock.kernels.port import State, Stepped
from penstock.kernels.windows import fragments
from penstock.kernels.windows.chains import chained
from penstock.kernels.windows.final import WindowKernel
from penstock.kernels.windows.panes import PaneKernel
from penstock.kernels.windows.running import KeptKernel
from penstock.kernels.windows.sent_sessions import SentSessions
from penstock.plan.layouts import Spaced

from .cases import Case, make_case, with_keys
from .law import Broken, Implementation, check
from .over_engine import OverEngine, prepared
from .over_kernels import OverKernels, call

ENOUGH = 400


def caught(name: str, implementation: Implementation, made: Callable[[Case], Case] = lambda case: case, first: int = 0) -> bool:
    """first: the seed to begin with, where cases that show the bug are rare."""
    for seed in range(first, first + ENOUGH):
        try:
            check(made(make_case(name, seed)), implementation)
        except Broken:
            return True
    return False


class ForgetsWhatFires(AlertKernel):
    def step(self, state: State, rows: Sequence[pa.Table | None], frontiers: Sequence[int]) -> Stepped:
        kept = {table: slots for table, slots in state.runs_of.items() if table != KNOWN}
        return super().step(replace(state, runs_of=kept), rows, frontiers)


class TakesRowsAsTheyCome(AlertKernel):
    """Before all that are older are there."""

    def step(self, state: State, rows: Sequence[pa.Table | None], frontiers: Sequence[int]) -> Stepped:
        return super().step(state, rows, [FOREVER])


def row_counts_for_its_own_watermark(*given: Any) -> Watermarks:
    right = watermarks(*given)
    return right._replace(at=np.concatenate([right.at[1:], [right.end]])) if len(right.at) else right


def implausible_times_move_the_watermark(times: Any, appended: Any, start: int, future: int, *rest: Any) -> Watermarks:
    wrong = watermarks(times, appended, start, 2**61, *rest)
    return wrong._replace(plausible=times <= appended + future)


def the_last_mark_counts(
    times: Any, appended: Any, start: int, future: int, lateness: int | None, marks: Sequence[tuple[int, int]]
) -> Watermarks:
    if not marks:
        return watermarks(times, appended, start, future, lateness, marks)
    at, T = marks[-1]
    head = watermarks(times[:at], appended[:at], start, future, lateness, marks[:-1])
    tail = watermarks(times[at:], appended[at:], T, future, lateness, ())
    return Watermarks(np.concatenate([head.at, tail.at]), np.concatenate([head.plausible, tail.plausible]), tail.end)


class ClosesOneInstantTooEarly(WindowKernel):
    def step(self, state: State, rows: Any, frontiers: Sequence[int]) -> Any:
        return super().step(state, rows, [frontiers[0] + 1])


class KeepsTheNewestRun(WindowKernel):
    def merge(self, table: str, runs: Sequence[pa.Table]) -> pa.Table:
        return runs[-1]


class ForgetsOldRuns(JoinKernel):
    def merge(self, table: str, runs: Sequence[pa.Table]) -> pa.Table:
        return runs[-1]


class EvictsOneTooEarly(JoinKernel):
    def _keep(self, changes: Any, port: int, rows: Any, least: int) -> None:
        super()._keep(changes, port, rows, least + 1)

    def _evict(self, state: State, changes: Any, port: int, least: int) -> None:
        super()._evict(state, changes, port, least + 1)


class AnnouncesTooMuch(JoinKernel):
    def frontier(self, frontiers: Sequence[int]) -> int:
        return min(frontiers)


class HoldsBackByTheWrongBound(JoinKernel):
    def frontier(self, frontiers: Sequence[int]) -> int:
        least = min(frontiers)
        return least if least in (NEVER, FOREVER) else least - max(self._hi, 0)


class GivesUpOneTooEarly(JoinKernel):
    """Rows of the right side come out alone although a partner can still come."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._waiting[1].reach -= 1


class FiltersPairsAlone(JoinKernel):
    """The condition keeps pairs from coming out, but they count when it is asked who met nobody."""

    def _counting(self, port: int, seeker: pa.Table, met: Matches) -> Matches | None:
        return met

    def _pairs(self, encounter: Encounter) -> Any:
        sides = enumerate(zip(encounter.batches, encounter.meetings, strict=True))
        kept = [JoinKernel._counting(self, port, batch.rows, met) if batch and met else None for port, (batch, met) in sides]
        return super()._pairs(replace(encounter, meetings=(kept[0], kept[1])))


class LateTooFar(JoinKernel):
    def _is_late(self, rows: pa.Table) -> Any:
        return judging.late_for_instant(joins.numbers(rows, "__t") - 1, joins.numbers(rows, "__w"))


class OneFrontierForBoth(JoinKernel):
    def step(self, state: State, rows: Any, frontiers: Sequence[int]) -> Any:
        return super().step(state, rows, [max(frontiers)] * 2)


class FrontierOfTheWrongEpoch(MemoryRunner):
    """Prefetch the step the frontiers of this epoch as those of the one before."""

    def run(self, rows: Any, frontiers: Sequence[int]) -> Ran:
        self._frontiers = tuple(frontiers)
        return super().run(rows, frontiers)


class LosesABucket(MemoryRunner):
    def rebucket(self, buckets: int) -> None:
        super().rebucket(buckets)
        if buckets == 3:
            self._buckets[1] = {}


class CommitsWhatCrashed(MemoryRunner):
    def run(self, rows: Any, frontiers: Sequence[int]) -> Ran:
        ran = super().run(rows, frontiers)
        for slots in self._buckets[0].values():
            for slot in [slot for _, slot in ran.changes[0].drop if slot in slots]:
                del slots[slot]
        return ran


class ForgetsOneTooEarly(PaneKernel):
    def _is_over(self, slot: int, now: int, *, window: bool) -> bool:
        return super()._is_over(slot, now + 1, window=window)


class CompletesTwice(PaneKernel):
    def _complete(self, starts: Any, before: int, now: int) -> Any:
        return super()._complete(starts, before - 1, now)


class LeavesNoMark(EnrichKernel):
    def step(self, state: State, rows: Any, frontiers: Sequence[int]) -> Any:
        return super().step(replace(state, answered=NEVER), rows, frontiers)


class KeepsVersionsOfTheNewestRun(EnrichKernel):
    def merge(self, table: str, runs: Sequence[pa.Table]) -> pa.Table:
        return runs[-1]


class ForgetsVersionsTooEarly(EnrichKernel):
    def _horizon(self, state: State, now: int) -> int:
        return super()._horizon(state, now) + 1


class ForgetsAnswersTooEarly(EnrichKernel):
    def _remember(self, state: State, rows: Any, least: int, changes: Any) -> None:
        super()._remember(state, rows, least + 1, changes)


class HoldsNothingBack(EnrichKernel):
    def frontier(self, frontiers: Sequence[int]) -> int:
        return frontiers[0]


REPLACED: dict[str, tuple[str, OverKernels]] = {
    "an alert forgets what fires": ("alert", OverKernels(alert=ForgetsWhatFires)),
    "an alert takes rows as they come": ("alert", OverKernels(alert=TakesRowsAsTheyCome)),
    "the watermark includes the row itself": ("tumbling", OverKernels(stamp=row_counts_for_its_own_watermark)),
    "implausible times move the watermark": ("tumbling", OverKernels(stamp=implausible_times_move_the_watermark)),
    "a mark that goes back counts": ("tumbling", OverKernels(stamp=the_last_mark_counts)),
    "a window closes one instant too early": ("tumbling", OverKernels(window=ClosesOneInstantTooEarly)),
    "merging windows keeps the newest run": ("tumbling", OverKernels(window=KeepsTheNewestRun)),
    "a hopping window is forgotten one instant too early": ("hopping", OverKernels(panes=ForgetsOneTooEarly)),
    "a corrected window is forgotten one instant too early": ("changing", OverKernels(panes=ForgetsOneTooEarly)),
    "a hopping window is complete twice": ("hopping", OverKernels(panes=CompletesTwice)),
    "a new number of buckets loses one": ("tumbling", OverKernels(runner=LosesABucket)),
    "a lost attempt has dropped state": ("tumbling", OverKernels(runner=CommitsWhatCrashed)),
    "merging joins keeps the newest run": ("join-inner", OverKernels(join=ForgetsOldRuns)),
    "rows are forgotten one instant too early": ("join-inner", OverKernels(join=EvictsOneTooEarly)),
    "a join judges t - 1": ("join-inner", OverKernels(join=LateTooFar)),
    "the greater frontier is used for both sides": ("join-inner", OverKernels(join=OneFrontierForBoth)),
    "a left join does not hold its frontier back": ("join-left", OverKernels(join=AnnouncesTooMuch)),
    "a full join holds its frontier back as a left one": ("join-full", OverKernels(join=HoldsBackByTheWrongBound)),
    "rows of the right side come out one instant too early": ("join-right", OverKernels(join=GivesUpOneTooEarly)),
    "a condition filters pairs alone": ("join-where", OverKernels(join=FiltersPairsAlone)),
    "a version changes what was answered before": ("enrich", OverKernels(enrich=LeavesNoMark)),
    "merging versions keeps the newest run": ("enrich", OverKernels(enrich=KeepsVersionsOfTheNewestRun)),
    "a version is forgotten one instant too early": ("enrich", OverKernels(enrich=ForgetsVersionsTooEarly)),
    "an answer is forgotten one instant too early": ("enrich-correct", OverKernels(enrich=ForgetsAnswersTooEarly)),
    "an enrich that waits does not hold its frontier back": ("enrich-window", OverKernels(enrich=HoldsNothingBack)),
    "the frontier is that of the wrong epoch": ("join-left", OverKernels(runner=FrontierOfTheWrongEpoch)),
}


@pytest.mark.parametrize("bug", REPLACED)
def test_a_wrong_part_is_caught(bug: str) -> None:
    assert caught(*REPLACED[bug]), bug


def silently(state: State, table: str) -> State:
    """The state as if nothing were in this table."""
    return replace(state, runs_of={name: slots for name, slots in state.runs_of.items() if name != table})


class TakesARowAtTheEnd(WindowKernel):
    def prepare(self, port: int, rows: pa.Table) -> Any:
        at = rows.column_names.index(WATERMARK)
        return super().prepare(port, rows.set_column(at, WATERMARK, pc.subtract(rows[WATERMARK], 1)))


class TowardZero(Spaced):
    def panes(self, times: Any) -> Any:
        size = micros(self.size)
        return np.fix(times / size).astype(np.int64) * size


class CorrectsTooLate(PaneKernel):
    def judged(self, rows: pa.Table) -> judging.Verdicts:
        self._allowed += 1
        try:
            return super().judged(rows)
        finally:
            self._allowed -= 1


class CountsForAllWindows(PaneKernel):
    """A row that is on time for one of its windows counts for all of them."""

    def judged(self, rows: pa.Table) -> judging.Verdicts:
        right = super().judged(rows)
        if right.whole is not None and len(right.rows):
            right.whole = right.whole.copy()
            right.whole[right.rows] = True
            right.rows, right.starts, right.corrected = right.rows[:0], right.starts[:0], right.corrected[:0]
        return right


class ForgetsWhatItSent(PaneKernel):
    def step(self, state: State, rows: Any, frontiers: Sequence[int]) -> Any:
        return super().step(silently(state, SENT), rows, frontiers)


class TheOldestSentCounts(PaneKernel):
    def step(self, state: State, rows: Any, frontiers: Sequence[int]) -> Any:
        sent = {slot: list(reversed(runs)) for slot, runs in state.runs_of.get(SENT, {}).items()}
        return super().step(replace(state, runs_of={**state.runs_of, SENT: sent}), rows, frontiers)


class SilentKeysStay(KeptKernel):
    def shown(self, looked: Any, now: int) -> pa.Table:
        return super().shown(looked, NEVER)


class ForgetsWhoWasMatched(JoinKernel):
    def step(self, state: State, rows: Any, frontiers: Sequence[int]) -> Any:
        return super().step(silently(state, waiting.MATCHED[0]), rows, frontiers)


class SendsUnmatchedRowsAgain(JoinKernel):
    def step(self, state: State, rows: Any, frontiers: Sequence[int]) -> Any:
        return super().step(replace(state, frontiers=(NEVER, NEVER)), rows, frontiers)


class PlacedAsLeft(Output):
    def place(self, port: int, rows: pa.Table) -> pa.Array:
        return super().place(0, rows)


class PlacesRightRowsAsLeft(JoinKernel):
    def __init__(self, join: Any, inputs: Any, output: Any, **more: Any) -> None:
        super().__init__(join, inputs, output, **more)
        self._output = PlacedAsLeft(output, join.on, join.right, own=False)


class ConditionHoldsWhereNull(JoinKernel):
    def __init__(self, join: Any, *given: Any, **more: Any) -> None:
        tree = join.condition.tree
        null_too = call("or", tree, call("is_null", tree))
        super().__init__(replace(join, condition=replace(join.condition, tree=null_too)), *given, **more)


class NullKeysJoin(JoinKernel):
    def prepare(self, port: int, rows: pa.Table) -> Any:
        return super().prepare(port, rows.set_column(rows.column_names.index("key"), "key", rows["key"].fill_null("?")))


WRONG_RULES: dict[str, tuple[str, OverKernels]] = {
    "a row at the end of a window is on time": ("tumbling", OverKernels(window=TakesARowAtTheEnd)),
    "windows before 1970 are rounded up": ("tumbling", OverKernels(layout=TowardZero)),
    "a correction is taken one instant too late": ("changing", OverKernels(panes=CorrectsTooLate)),
    "a row counts for windows that it is late for": ("hopping", OverKernels(panes=CountsForAllWindows)),
    "what was sent is forgotten": ("changing", OverKernels(panes=ForgetsWhatItSent)),
    "the oldest of what was sent counts": ("changing", OverKernels(panes=TheOldestSentCounts)),
    "a key that was silent too long stays": ("running", OverKernels(kept=SilentKeysStay)),
    "what was matched is forgotten": ("join-left", OverKernels(join=ForgetsWhoWasMatched)),
    "unmatched rows come out again": ("join-left", OverKernels(join=SendsUnmatchedRowsAgain)),
    "a row comes out for each of its partners": ("join-semi", OverKernels(join=ForgetsWhoWasMatched)),
    "a right row alone is placed as a left one": ("join-right", OverKernels(join=PlacesRightRowsAsLeft)),
    "a condition that is null holds": ("join-where", OverKernels(join=ConditionHoldsWhereNull)),
    "null keys join": ("join-inner", OverKernels(join=NullKeysJoin)),
}


@pytest.mark.parametrize("bug", WRONG_RULES)
def test_a_wrong_rule_is_caught(bug: str) -> None:
    assert caught(*WRONG_RULES[bug]), bug


PATCHED: dict[str, tuple[str, Any, str, Callable[..., Any]]] = {
    "rows a gap apart are one session": (
        "session",
        fragments,
        "chained",
        lambda keys, firsts, lasts, gap: chained(keys, firsts, lasts, gap + 1),
    ),
    "what was sent of a session stays where it was filed": (
        "changing-session",
        SentSessions,
        "moved",
        lambda self, sent, there, run: [],
    ),
    "right rows that meet new left ones count as unmatched": (
        "join-full",
        Matches,
        "met_fresh",
        lambda self, rows: np.zeros(rows, np.bool_),
    ),
}


@pytest.mark.parametrize("bug", PATCHED)
def test_a_wrong_part_deep_inside_is_caught(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, *planted = PATCHED[bug]
    monkeypatch.setattr(*planted)
    assert caught(name, OverKernels()), bug


def test_equal_hashes_taken_for_equal_keys_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "same_keys", lambda left, right: np.ones(len(left[0]), np.bool_))
    assert caught("join-inner", OverKernels(), lambda case: with_keys(case, colliding(3)))


def nothing_answered(opened: Any, result: Any) -> dict[str, int]:
    return dict.fromkeys(opened.answered, NEVER)


def the_last_answers_alone(opened: Any, result: Any) -> dict[str, int]:
    return {step: result.answered.get(step, NEVER) for step in opened.answered}


def behind_what_was_read_alone(program: Any, opened: Any, *rest: Any) -> list[Any]:
    return [m for m in marks_on_tables(program, opened, *rest) if m.time != opened.answered[m.step]]


IN_THE_ENGINE: dict[str, tuple[str, Any]] = {
    "answers leave no mark": ("after_answers", nothing_answered),
    "a mark goes back": ("after_answers", the_last_answers_alone),
    "a partition first seen has no mark": ("marks_on_tables", behind_what_was_read_alone),
}


@pytest.mark.parametrize("bug", IN_THE_ENGINE)
def test_a_wrong_mark_on_a_table_is_caught(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, *IN_THE_ENGINE[bug])
    assert caught("enrich", OverEngine(True), prepared), bug
