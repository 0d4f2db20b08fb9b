"""Column pruning: every step gives only what some step or output below it reads."""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from penstock.core.schema import Schema
from penstock.flow import plan

Needs = dict[str, set[str]]


def prune(steps: Sequence[plan.Step], outputs: Sequence[plan.Output]) -> tuple[plan.Step, ...]:
    """The same steps without the columns that nobody reads."""
    by_name = {step.name: step for step in steps}
    needs: Needs = {step.name: set() for step in steps}
    for output in outputs:
        needs[output.input] |= set(by_name[output.input].schema.names)
    for step in reversed(steps):
        if isinstance(step.definition, plan.Aggregating | plan.Last | plan.MapArrow):
            needs[step.name] |= set(step.schema.names)
        if isinstance(step.definition, plan.Join):
            needs[step.name] |= set(step.definition.on)
        _ask(step, by_name, needs)
    made: dict[str, plan.Step] = {}
    for step in steps:
        if isinstance(step.definition, plan.Where):  # it looks at rows and leaves them as they are
            made[step.name] = replace(step, schema=made[step.inputs[0]].schema)
        else:
            made[step.name] = _narrowed(step, needs[step.name])
    return tuple(made.values())


def _ask(step: plan.Step, steps: dict[str, plan.Step], needs: Needs) -> None:
    """Adds what the step reads to what its inputs must give."""
    mine = needs[step.name]
    match step.definition:
        case plan.Where(condition):
            needs[step.inputs[0]] |= mine | set(condition.columns)
        case plan.Select(columns):
            needs[step.inputs[0]] |= {c for name, e in columns if name in mine for c in e.columns}
        case plan.Union():
            for name in step.inputs:
                needs[name] |= mine
        case plan.LateRows(port):
            needs[steps[step.inputs[0]].inputs[port]] |= mine
        case plan.MapArrow():
            needs[step.inputs[0]] |= set(steps[step.inputs[0]].schema.names)
        case plan.Sliding() | plan.Last():  # they give the rows themselves
            needs[step.inputs[0]] |= set(steps[step.inputs[0]].schema.names)
        case plan.Window() | plan.Session() | plan.Count() | plan.Running() as keyed:
            read = {*keyed.by, *(c for a in keyed.aggregates for c in a.columns)}
            needs[step.inputs[0]] |= read | _diverted(step, 0, keyed.late, steps)
        case plan.Join(on, _, _, _, late, right):
            own = dict(right)
            needs[step.inputs[0]] |= {*on, *(n for n in mine if n not in own)} | _diverted(step, 0, late, steps)
            needs[step.inputs[1]] |= {*on, *(own[n] for n in mine if n in own)} | _diverted(step, 1, late, steps)
        case _:
            pass


def _diverted(step: plan.Step, port: int, late: str, steps: dict[str, plan.Step]) -> set[str]:
    """Diverted rows are kept whole, unless the flow itself says with `.late` which of their columns it wants."""
    used = any(isinstance(s.definition, plan.LateRows) and s.inputs == (step.name,) for s in steps.values())
    whole = steps[step.inputs[port]].schema.names
    return set(whole) if late in ("divert", "correct") and not used else set()


def _narrowed(step: plan.Step, needed: set[str]) -> plan.Step:
    definition = step.definition
    if isinstance(definition, plan.Source):
        needed = needed | set(definition.reads)
    schema = Schema(pa.schema([f for f in step.schema if f.name in needed]))
    if isinstance(definition, plan.Source):
        definition = replace(definition, columns=tuple(schema.names))
    elif isinstance(definition, plan.Select):
        definition = replace(definition, columns=tuple(c for c in definition.columns if c[0] in needed))
    elif isinstance(definition, plan.Join):
        definition = replace(definition, right=tuple(r for r in definition.right if r[0] in needed))
    return replace(step, definition=definition, schema=schema)
