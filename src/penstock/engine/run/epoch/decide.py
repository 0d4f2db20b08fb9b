"""Step 4, Decide: what an epoch has come to, as the one file that commits it."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from penstock.core.time import NEVER
from penstock.engine.execute.job import Result
from penstock.engine.execute.program import Program
from penstock.engine.run.context import FlowContext
from penstock.engine.run.epoch.answering import after_answers, marks_on_tables
from penstock.engine.run.epoch.decision import Decision
from penstock.engine.run.epoch.horizon import horizon
from penstock.engine.run.epoch.open import Opened, learned
from penstock.engine.state.refs import RunRef
from penstock.errors import Unreachable
from penstock.log.accounting import OFFSETS, ROWS, balanced
from penstock.sinks.port import Marker

Counts = Mapping[str, Mapping[str, int]]  # of each step, or each source


def decision_for(
    context: FlowContext,
    program: Program,
    marker: Marker,
    opened: Opened,
    last: Decision | None,
    state: tuple[RunRef, ...],
    result: Result,
) -> Decision:
    """The decision of an epoch that has run; Unreachable if an offset is not accounted for. state: what the epoch began with."""
    _check_accounts(opened, result)
    touched, answered = set(result.touched), after_answers(opened, result)
    gone: Counts = {source: {"gone": offsets} for source, offsets in opened.gone.items()}
    deltas = _added(result.fates, gone)
    return Decision(
        flow=program.plan.flow,
        incarnation=marker.incarnation,
        generation=marker.generation,
        epoch=marker.epoch,
        clock=opened.clock,
        fingerprint=program.fingerprint(),
        buckets=context.buckets,
        sources=learned(opened, program, result.times, result.marks),
        ranges=_ranges(opened),
        marks=(*opened.marks, *marks_on_tables(program, opened, last, answered)),
        frontiers=dict(opened.frontiers),
        state=(*(r for r in state if (r.step, r.bucket) not in touched), *result.runs),
        staged=tuple(result.staged),
        fates=_added(last.fates if last else {}, deltas),
        rows=sum(result.fates[source]["in"] for source in program.sources if source in result.fates),
        answered=answered,
        accounts=_added(last.accounts if last else {}, result.accounts),
        horizon=_horizon(context, program, opened, last, result),
        deltas=deltas,
    )


def _added(counts: Counts, more: Counts) -> dict[str, dict[str, int]]:
    total = {name: Counter(of) for name, of in counts.items()}
    for name, of in more.items():
        total.setdefault(name, Counter()).update(of)
    return {name: dict(of) for name, of in total.items()}


def _check_accounts(opened: Opened, result: Result) -> None:
    """Every offset of the epoch's ranges is a row with a fate, a mark, or known to hold nothing; else nothing is decided (G29)."""
    for source, ranges in _ranges(opened).items():
        account, due = result.accounts[source], sum(stop - start for start, stop in ranges.values())
        rows = result.fates[source]["in"] if source in result.fates else 0
        if not balanced(account) or account[OFFSETS] != due or account[ROWS] != rows:
            raise Unreachable(
                f"epoch {opened.epoch} is not decided: {source} was to be read over {due} offsets",
                f"accounted for are {account[OFFSETS]}, {account[ROWS]} of them rows; {rows} rows came in",
                hint="the epoch is run again",
            )


def _horizon(context: FlowContext, program: Program, opened: Opened, last: Decision | None, result: Result) -> Mapping[str, Any]:
    """Where the input ends: from when on the flow could go on all the same. It is noted now, as long as it is known."""
    noted = horizon(program, context.log, opened.sources, last) if opened.ends else last.horizon if last else {}
    if not noted:
        return noted
    answered = {step: max(mark, result.answered.get(step, NEVER)) for step, mark in noted["answered"].items()}
    return {**noted, "answered": answered}


def _ranges(opened: Opened) -> dict[str, dict[int, tuple[int, int]]]:
    out: dict[str, dict[int, tuple[int, int]]] = {}
    for span in opened.ranges:
        out.setdefault(span.step, {})[span.partition] = (span.start, span.stop)
    return out
