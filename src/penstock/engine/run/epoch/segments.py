"""Step 2, Read, and Step 3, Run: the segments of a flow in tasks; between two of them Spark SQL evaluates what only it can."""

from collections.abc import Mapping

from penstock.engine.execute.job import Carried, Job, Result
from penstock.engine.execute.placement import InProcess
from penstock.engine.execute.program import Program
from penstock.engine.run.context import FlowContext
from penstock.engine.run.epoch.decision import Decision
from penstock.engine.run.epoch.open import Opened, spread
from penstock.engine.state.refs import RunRef
from penstock.engine.state.runs import StateWriter, rebucket


def run_segments(
    context: FlowContext, program: Program, opened: Opened, last: Decision | None, state: tuple[RunRef, ...]
) -> Result:
    """Everything that the tasks of an epoch have written and counted."""
    placement = context.place(opened.rows)
    ranges = opened.ranges if isinstance(placement, InProcess) else spread(opened, program, context.tasks)
    total, carried = Result(), list[Carried]()
    for segment in range(program.segments):
        job = Job(
            program=program,
            storage=context.storage,
            log=context.log,
            epoch=opened.epoch,
            segment=segment,
            buckets=context.buckets,
            ranges=ranges if segment == 0 else (),
            carried=tuple(c for c in carried if _segment(program, c.reader) == segment),
            state=state,
            inputs=_port_frontiers(program, opened.frontiers),
            before=_port_frontiers(program, last.frontiers) if last else {},
            clock=(last.clock if last else 0, opened.clock),
            answered=opened.answered,
        )
        result = placement.run(job)
        carried += _next_inputs(context, job, result)
        total.add(result)
    return total


def fitting_state(context: FlowContext, program: Program, last: Decision | None, epoch: int) -> tuple[RunRef, ...]:
    """The state of the last decision, cut anew if the number of buckets has changed."""
    if not last:
        return ()
    if last.buckets == context.buckets:
        return last.state
    writer = StateWriter(context.storage, epoch)
    for step in program.kernels:
        refs = [r for r in last.state if r.step == step]
        for bucket in range(context.buckets):
            rebucket(context.storage, writer, refs, step, bucket, context.buckets)
    of_sources = (r for r in last.state if r.step in program.sources)  # by partition, not by hash
    return (*of_sources, *writer.write())


def _segment(program: Program, reader: str) -> int:
    return program.places[reader.partition(":")[0]].segment


def _next_inputs(context: FlowContext, job: Job, result: Result) -> list[Carried]:
    """Files for later segments: rows as they are, or what Spark SQL made of them."""
    plan = job.program.plan
    plain = [Carried(reader, file) for reader, file, _ in result.carried if not plan.step(reader.partition(":")[0]).node.needs_sql]
    if len(plain) == len(result.carried):
        return plain
    assert context.sql
    return plain + context.sql(job, result)


def _port_frontiers(program: Program, frontiers: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(frontiers[i] for i in program.plan.step(name).inputs) for name in program.kernels}
