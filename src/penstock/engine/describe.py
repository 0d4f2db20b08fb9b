"""The steps that can be asked about later, as plain values: kept with every start of a flow."""

from penstock.core.time import micros
from penstock.flow.plan import Plan, Window


def describe(plan: Plan) -> list[dict[str, object]]:
    """Windows: what is needed to show the open ones without the flow's program."""
    out: list[dict[str, object]] = []
    for step in plan.steps:
        if isinstance(step.definition, Window):
            out.append(_window(plan, step.name, step.definition))
    return out


def _window(plan: Plan, name: str, window: Window) -> dict[str, object]:
    step = plan.step(name)
    return {
        "name": name,
        "by": list(window.by),
        "size": micros(window.size),
        "late": window.late,
        "aggregates": [[a.name, a.function, a.column] for a in window.aggregates],
        "input": plan.step(step.inputs[0]).schema.ddl(),
        "output": step.schema.ddl(),
        "views": [o.name for o in plan.outputs if o.kind == "view" and o.input == name],
    }
