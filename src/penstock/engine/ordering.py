"""Which steps give their rows in the order of the log, and which of them are asked for it: topics keep that order."""

from collections.abc import Iterable, Mapping

from penstock.flow.plan import Hidden, LateRows, Lookup, MapArrow, Plan, Select, Source, Step, Union, Where
from penstock.kernels.port import Kernel, keeps_order

_ONE_TO_ONE = Where | Hidden | Select | MapArrow | Lookup


def in_log_order(plan: Plan, kernels: Mapping[str, Kernel]) -> frozenset[str]:
    """Steps that give records of the log in the epoch in which they are read: these carry ADDRESS."""
    found: set[str] = set()
    for step in plan.steps:
        if not step.updating and _keeps(plan, step, kernels, found):
            found.add(step.name)
    return frozenset(found)


def _keeps(plan: Plan, step: Step, kernels: Mapping[str, Kernel], above: set[str]) -> bool:
    match step.definition:
        case Source(versions=versions):
            return versions is None
        case LateRows(port):
            return plan.step(step.inputs[0]).inputs[port] in above
        case Union():
            return any(name in above for name in step.inputs)
        case _ if isinstance(step.definition, _ONE_TO_ONE) or (step.name in kernels and keeps_order(kernels[step.name])):
            return step.inputs[0] in above
        case _:
            return False


def wanted_in_order(plan: Plan, kept: frozenset[str], late_sink: Iterable[str]) -> frozenset[str]:
    """Those of the steps whose rows come to a topic in the order of the log: nobody else asks for it. The late rows of
    `late_sink` go to the flow's own topic."""
    wanted = {output.input for output in plan.outputs if output.kind == "topic"} & kept
    wanted |= {name for step in late_sink for name in plan.step(step).inputs} & kept
    for step in reversed(plan.steps):
        if step.name in wanted:
            judged = isinstance(step.definition, LateRows)
            wanted |= {*(plan.step(step.inputs[0]).inputs if judged else step.inputs)} & kept
    return frozenset(wanted)
