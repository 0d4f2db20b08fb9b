"""Which steps give their rows in the order of the log, and which of them are asked for it: topics keep that order."""

from collections.abc import Iterable, Mapping

from penstock.kernels.port import Kernel, keeps_order
from penstock.plan import Plan, Step


def in_log_order(plan: Plan, kernels: Mapping[str, Kernel]) -> frozenset[str]:
    """Steps that give records of the log in the epoch in which they are read: these carry ADDRESS."""
    found: set[str] = set()
    for step in plan.steps:
        if not step.updating and _keeps(plan, step, kernels, found):
            found.add(step.name)
    return frozenset(found)


def _keeps(plan: Plan, step: Step, kernels: Mapping[str, Kernel], above: set[str]) -> bool:
    if step.name in plan.sources:
        return plan.sources[step.name].versions is None
    feeds = plan.feeds(step)
    if step.keyed:
        return keeps_order(kernels[step.name]) and feeds[0] in above
    return step.node.keeps_rows and any(name in above for name in feeds)


def wanted_in_order(plan: Plan, kept: frozenset[str], late_sink: Iterable[str]) -> frozenset[str]:
    """Those of the steps whose rows come to a sink in the order of the log: nobody else asks for it. The late rows of
    `late_sink` go to the flow's own topic."""
    wanted = {output.input for output in plan.outputs if output.definition.ordered} & kept
    wanted |= {name for step in late_sink for name in plan.step(step).inputs} & kept
    for step in reversed(plan.steps):
        if step.name in wanted:
            wanted |= {*plan.feeds(step)} & kept
    return frozenset(wanted)
