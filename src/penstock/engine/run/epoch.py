"""An epoch, step by step: open, read, run, decide. `run_epoch` knows nothing of the loop around it."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.core.time import NEVER
from penstock.engine.execute.failing_share import FailingShare
from penstock.engine.execute.placement import Carried, InProcess, Job, Placement
from penstock.engine.execute.program import Program
from penstock.engine.execute.task import Result
from penstock.engine.run.answering import after_answers, marks_on_tables
from penstock.engine.run.decision import Decision, Decisions, RunRef
from penstock.engine.run.horizon import horizon
from penstock.engine.run.open import Opened, learned, spread
from penstock.engine.state.runs import StateWriter, rebucket
from penstock.errors import Unreachable
from penstock.log.accounting import OFFSETS, ROWS, balanced
from penstock.log.port import Log
from penstock.sinks.port import nothing
from penstock.storage.port import Storage

Fail = Callable[[str], None]  # called at named points; tests crash there


@dataclass
class Setting:
    """What stays the same from epoch to epoch."""

    program: Program
    log: Log
    storage: Storage
    decisions: Decisions
    incarnation: str
    generation: int
    buckets: int
    place: Callable[[int], Placement]  # rows in the epoch -> where to run it
    tasks: int = 1
    sql: Callable[[Job, Result], list[Carried]] | None = None
    fail: Fail = nothing
    failing: FailingShare = field(default_factory=FailingShare)


@dataclass
class Timing:
    """Seconds of each numbered step."""

    seconds: dict[str, float] = field(default_factory=dict)

    def lap(self, what: str, since: float) -> float:
        now = time.perf_counter()
        self.seconds[what] = self.seconds.get(what, 0.0) + now - since
        return now


def run_epoch(setting: Setting, opened: Opened, last: Decision | None, timing: Timing) -> Decision:
    """2. Read and 3. Run in the tasks of the placement, then 4. Decide."""
    setting.fail("after_open")
    at = time.perf_counter()
    state = _fitting_state(setting, last, opened.epoch)
    result = _run(setting, opened, last, state)
    at = timing.lap("run", at)
    for what, seconds in result.seconds.items():
        timing.seconds[f"run.{what}"] = seconds
    setting.failing.check(setting.program.plan, result.fates, result.samples)
    setting.fail("after_run")
    decision = _decision(setting, opened, last, state, result)
    setting.fail("before_decide")
    setting.decisions.publish(decision)
    timing.lap("decide", at)
    setting.failing.decided(result.fates)
    setting.fail("after_decide")
    return decision


def _run(setting: Setting, opened: Opened, last: Decision | None, state: tuple[RunRef, ...]) -> Result:
    """Segment after segment; between two of them Spark SQL evaluates what only it can."""
    program, placement = setting.program, setting.place(opened.rows)
    ranges = opened.ranges if isinstance(placement, InProcess) else spread(opened, program, setting.tasks)
    total, carried = Result(), list[Carried]()
    for segment in range(program.segments):
        job = Job(
            program=program,
            storage=setting.storage,
            log=setting.log,
            epoch=opened.epoch,
            segment=segment,
            buckets=setting.buckets,
            ranges=ranges if segment == 0 else (),
            carried=tuple(c for c in carried if _segment(program, c.reader) == segment),
            state=state,
            inputs=_port_frontiers(program, opened.frontiers),
            before=_port_frontiers(program, last.frontiers) if last else {},
            clock=(last.clock if last else 0, opened.clock),
            answered=opened.answered,
        )
        result = placement.run(job)
        new = _next_inputs(setting, job, result)
        carried += new
        total.add(result)
    return total


def _segment(program: Program, reader: str) -> int:
    return program.places[reader.partition(":")[0]].segment


def _next_inputs(setting: Setting, job: Job, result: Result) -> list[Carried]:
    """Files for later segments: rows as they are, or what Spark SQL made of them."""
    plan = job.program.plan
    plain = [Carried(reader, file) for reader, file, _ in result.carried if not plan.step(reader.partition(":")[0]).node.needs_sql]
    if len(plain) == len(result.carried):
        return plain
    assert setting.sql
    return plain + setting.sql(job, result)


def _port_frontiers(program: Program, frontiers: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(frontiers[i] for i in program.plan.step(name).inputs) for name in program.kernels}


def _fitting_state(setting: Setting, last: Decision | None, epoch: int) -> tuple[RunRef, ...]:
    """The state of the last decision, cut anew if the number of buckets has changed."""
    if not last:
        return ()
    if last.buckets == setting.buckets:
        return last.state
    writer = StateWriter(setting.storage, epoch)
    for step in setting.program.kernels:
        refs = [r for r in last.state if r.step == step]
        for bucket in range(setting.buckets):
            rebucket(setting.storage, writer, refs, step, bucket, setting.buckets)
    of_sources = (r for r in last.state if r.step in setting.program.sources)  # by partition, not by hash
    return (*of_sources, *writer.write())


def _decision(setting: Setting, opened: Opened, last: Decision | None, state: tuple[RunRef, ...], result: Result) -> Decision:
    _check_accounts(opened, result)
    touched, answered = set(result.touched), after_answers(opened, result)
    deltas = {step: Counter(counts) for step, counts in result.fates.items()}
    for source, offsets in opened.gone.items():
        deltas.setdefault(source, Counter())["gone"] += offsets
    fates = {step: Counter(counts) for step, counts in last.fates.items()} if last else {}
    for step, counts in deltas.items():
        fates.setdefault(step, Counter()).update(counts)
    accounts = {source: Counter(counts) for source, counts in last.accounts.items()} if last else {}
    for source, counts in result.accounts.items():
        accounts.setdefault(source, Counter()).update(counts)
    return Decision(
        flow=setting.program.plan.flow,
        incarnation=setting.incarnation,
        generation=setting.generation,
        epoch=opened.epoch,
        clock=opened.clock,
        fingerprint=setting.program.fingerprint(),
        buckets=setting.buckets,
        sources=learned(opened, setting.program, result.times, result.marks),
        ranges=_ranges(opened),
        marks=(*opened.marks, *marks_on_tables(setting.program, opened, last, answered)),
        frontiers=dict(opened.frontiers),
        state=(*(r for r in state if (r.step, r.bucket) not in touched), *result.runs),
        staged=tuple(result.staged),
        fates={step: dict(counts) for step, counts in fates.items()},
        rows=sum(result.fates[source]["in"] for source in setting.program.sources if source in result.fates),
        answered=answered,
        accounts={source: dict(counts) for source, counts in accounts.items()},
        horizon=_horizon(setting, opened, last, result),
        deltas={step: dict(counts) for step, counts in deltas.items()},
    )


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


def _horizon(setting: Setting, opened: Opened, last: Decision | None, result: Result) -> Mapping[str, Any]:
    """Where the input ends: from when on the flow could go on all the same. It is noted now, as long as it is known."""
    noted = horizon(setting.program, setting.log, opened.sources, last) if opened.ends else last.horizon if last else {}
    if not noted:
        return noted
    answered = {step: max(mark, result.answered.get(step, NEVER)) for step, mark in noted["answered"].items()}
    return {**noted, "answered": answered}


def _ranges(opened: Opened) -> dict[str, dict[int, tuple[int, int]]]:
    out: dict[str, dict[int, tuple[int, int]]] = {}
    for span in opened.ranges:
        out.setdefault(span.step, {})[span.partition] = (span.start, span.stop)
    return out
