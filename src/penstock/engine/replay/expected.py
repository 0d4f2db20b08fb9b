"""What a sink should hold: its output computed again from the log, or read from a view of the same step."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from penstock.core.columns import POSITION, TIME
from penstock.core.time import FixedClock
from penstock.engine.diagnose.trace import marks_of
from penstock.engine.execute.program import Program, lower
from penstock.engine.replay.replay import Replay
from penstock.engine.run.context import FlowContext
from penstock.engine.run.driver import Driver
from penstock.engine.run.epoch.decision import Decision, Decisions
from penstock.engine.run.epoch.deliver import Target
from penstock.engine.run.epoch.report import Report
from penstock.engine.run.outputs import spec_of
from penstock.errors import BadInput, Mismatch, NotFound
from penstock.log.port import Log, Topic
from penstock.plan import Output, Plan, Step
from penstock.sinks.port import Delivery
from penstock.sinks.stores.changes import Keep, changes_of
from penstock.sinks.stores.content import Content
from penstock.sinks.stores.port import Changes
from penstock.storage.port import Storage
from penstock.views.view import View

Seen = Callable[[int, int], None]
Spark = Callable[[Storage, Callable[[Program], list[Target]], int], FlowContext]  # directory, sinks and buckets of a flow
IN_PROCESS = 200_000  # offsets that are run again sooner than Spark starts


@dataclass
class Expected:
    """What a sink should hold behind an epoch of this life of its flow."""

    content: Content
    epoch: int
    incarnation: str = ""

    def forward(self, decisions: Decisions, output: Output, epoch: int) -> None:
        """Behind a later epoch: what that and those before it have staged for the sink comes on top."""
        for number in decisions.epochs():
            if self.epoch < number <= epoch:
                if number > self.epoch + 1:
                    raise Mismatch(f"epochs {self.epoch + 1} to {number - 1} of flow {decisions.flow} are not kept")
                self.content.add(staged_changes(decisions, output, self.content, number))
                self.epoch = number
        if self.epoch < epoch:
            raise Mismatch(f"epoch {epoch} of flow {decisions.flow} is not kept")


def staged_changes(decisions: Decisions, output: Output, content: Content, epoch: int) -> Changes:
    """What a decided epoch does to the sink."""
    files = [staged.file for staged in decisions.read(epoch).staged if staged.sink == output.id]
    return changes_of(content.spec, decisions.storage, files, content.keep)


class CollectorSink:
    """Takes the epochs of a replay."""

    def __init__(self, content: Content, storage: Storage) -> None:
        self._content, self._storage = content, storage

    def open(self, incarnation: str, generation: int) -> int:
        return -1

    def deliver(self, delivery: Delivery) -> None:
        self._content.add(changes_of(self._content.spec, self._storage, delivery.files, self._content.keep))

    def close(self) -> None:
        """There is nothing to close."""


@dataclass(frozen=True)
class Repeated:
    """A flow whose decided epochs are run again, in a directory of its own. spark: how its tasks are run where there is much to do;
    None: in this process."""

    log: Log
    decisions: Decisions
    plan: Plan
    spark: Spark | None = None

    def output(self, output: Output, keep: Keep, until: Decision, scratch: Storage, seen: Seen) -> Expected:
        """What an output gave, up to a decision. seen: called with how many offsets were read, and how many there are."""
        part = upstream_of(self.plan, output)
        program = lower(part, topics_of(self.log, part))
        refuse_unrepeatable(program, output)
        content = Content(spec_of(program, output), scratch, keep)
        total, done = _offsets(self.log, part, until), 0

        def report(of: Report) -> None:
            nonlocal done
            done += sum(stop - start for ranges in of.decision.ranges.values() for start, stop in ranges.values())
            seen(done, total)

        target = Target(output.id, CollectorSink(content, scratch), output.input)
        driver = Driver(part, self._context(part, target, until, scratch, total))
        driver.start()
        try:
            Replay(driver, marks_of(self.decisions, until.epoch), until).run(report)
        finally:
            driver.release()
        return Expected(content, until.epoch)

    def _context(self, plan: Plan, target: Target, until: Decision, scratch: Storage, total: int) -> FlowContext:
        def sinks(program: Program) -> list[Target]:
            return [target]

        small = total <= IN_PROCESS and not any(step.node.needs_sql for step in plan.steps)
        if small or self.spark is None:
            context = FlowContext(self.log, scratch, sinks, buckets=until.buckets)
        else:
            context = self.spark(scratch, sinks, until.buckets)
        return replace(context, clock=FixedClock(until.clock))


def from_view(home: Path, program: Program, output: Output, keep: Keep, name: str, scratch: Storage) -> Expected:
    """The rows of a view of the same step, as of its last epoch."""
    plan = program.plan
    found = next((o for o in plan.outputs if o.kind == "view" and o.definition.target == name), None)
    if found is None:
        there = ", ".join(o.definition.target for o in plan.outputs if o.kind == "view" and o.input == output.input) or "none"
        raise NotFound(f"flow {plan.flow} has no view {name!r}", f"views of the same step: {there}")
    if found.input != output.input or found.key != output.key or not output.key:
        raise BadInput(
            f"view {name} cannot say what {output.id} should hold",
            f"it shows step {found.input} by {', '.join(found.key) or 'position'}; the sink has step {output.input} by "
            f"{', '.join(output.key) or 'position'}",
            hint="a view of the same step with the same key can: step.view(…, key=…)",
        )
    with View(home / "views", name) as view, view.snapshot():
        rows, epoch = view.rows(), view.epoch
    content = Content(spec_of(program, output), scratch, keep)
    rows = rows.append_column(TIME, pa.nulls(rows.num_rows, pa.int64())).append_column(
        POSITION, pa.nulls(rows.num_rows, pa.binary())
    )
    content.add(Changes(rows, rows.slice(0, 0)))
    return Expected(content, epoch)


def upstream_of(plan: Plan, output: Output) -> Plan:
    """The plan of one output alone."""
    wanted, steps = {output.input}, list[Step]()
    for step in reversed(plan.steps):
        if step.name in wanted:
            wanted |= {*step.inputs, *plan.feeds(step)}
            steps.append(step)
    return replace(plan, steps=tuple(reversed(steps)), outputs=(output,))


def refuse_unrepeatable(program: Program, output: Output) -> None:
    """What open windows show by the clock is not in the log."""
    if program.early:
        step = next(iter(program.early))
        raise BadInput(
            f"{output.id} shows open windows of step {step} by the clock: what it has shown when is not in the log",
            hint="a view of the same step has its rows: --from-view NAME",
        )


def topics_of(log: Log, plan: Plan) -> dict[str, Topic | None]:
    there = set(log.topics())
    return {s.topic: log.topic(s.topic) if s.topic in there else None for s in plan.sources.values()}


def _offsets(log: Log, plan: Plan, until: Decision) -> int:
    """How many there are to read; Mismatch if some that the flow has read are gone."""
    total = 0
    for name, source in plan.sources.items():
        if source.static or not until.sources[name].topic_id:
            continue
        ends = log.topic(source.topic).ends()
        for number, state in until.sources[name].partitions.items():
            if ends[number].first > 0:
                raise Mismatch(
                    f"topic {source.topic} has no records before offset {ends[number].first} of partition {number} any more",
                    "what they led to cannot be computed again",
                    hint="a view of the same step has its rows: --from-view NAME",
                )
            total += state.next
    return total
