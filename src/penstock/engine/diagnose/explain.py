"""How Spark runs a plan: segments, levels and shuffles, and the physical plan of steps that only Spark SQL evaluates."""

from penstock.engine.execute.program import Place, Program, lower
from penstock.engine.execute.sql import SYSTEM, apply, ddl
from penstock.engine.run.runtime import SMALL, Runtime
from penstock.plan import Plan


def spark_text(runtime: Runtime, plan: Plan) -> str:
    program = lower(plan, {})
    lines = [
        "",
        f"on Spark ({runtime.master or 'local'}):",
        f"  up to {SMALL:,} rows: every segment in one task, without a shuffle, {runtime.small_epochs()}",
    ]
    for segment in range(program.segments):
        lines += _segment(program, segment)
        for step in plan.steps:
            if step.node.needs_sql and program.places[step.name].segment == segment + 1:
                schema = plan.step(step.inputs[0]).schema
                rows = runtime.session.createDataFrame([], ddl(schema, SYSTEM))
                physical = apply(step, rows, SYSTEM)._jdf.queryExecution().executedPlan().toString()
                lines += [
                    f"  between segments, Spark SQL evaluates {step.name}:",
                    *(f"    {x}" for x in physical.strip().splitlines()),
                ]
    return "\n".join(lines)


def _segment(program: Program, segment: int) -> list[str]:
    lines = []
    for level in range(program.depth(segment) + 1):
        steps = [n for n, place in program.places.items() if place == Place(segment, level)]
        how = "read, by ranges of the log" if level == 0 else "shuffle by our hash of the key, then"
        lines.append(f"  segment {segment}, level {level}: {how}: {', '.join(steps)}")
    return lines
