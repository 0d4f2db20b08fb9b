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
    steps = _reached(steps, outputs)
    for step in reversed(steps):
        needs[step.name] |= _always(step)
        _ask(step, by_name, needs)
    made: dict[str, plan.Step] = {}
    for step in steps:
        if isinstance(step.definition, plan.Where | plan.Hidden):  # it looks at rows and leaves them as they are
            made[step.name] = replace(step, schema=made[step.inputs[0]].schema)
        else:
            made[step.name] = _narrowed(step, needs[step.name])
    return tuple(made.values())


def _reached(steps: Sequence[plan.Step], outputs: Sequence[plan.Output]) -> list[plan.Step]:
    """The steps that some output needs: of a table, its versions and its current rows are rarely both."""
    wanted = {output.input for output in outputs}
    for step in reversed(steps):
        if step.name in wanted:
            wanted |= set(step.inputs)
    return [step for step in steps if step.name in wanted]


def _always(step: plan.Step) -> set[str]:
    """The columns that a step gives whether or not anybody reads them."""
    match step.definition:
        case plan.Window() | plan.Session() | plan.Count() | plan.Sliding() | plan.Running() | plan.Grouping():
            return set(step.schema.names)
        case plan.Last() | plan.MapArrow() | plan.Pairs():  # of a pair whose condition fails, everything is told
            return set(step.schema.names)
        case plan.Join(on) | plan.Matched(on):
            return set(on)
        case plan.TableJoin(on, key=key):
            return {*on, *key}
        case plan.Latest(by, order):
            return {*by, *((order,) if order else ())}
        case _:
            return set()


def _ask(step: plan.Step, steps: dict[str, plan.Step], needs: Needs) -> None:
    """Adds what the step reads to what its inputs must give."""
    mine = needs[step.name]
    match step.definition:
        case plan.Where(condition) | plan.Hidden(condition):
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
        case plan.Lookup(_, on, _, answers):
            needs[step.inputs[0]] |= {*on, *(n for n in mine if n not in answers)}
        case plan.Sliding() | plan.Last():  # they give the rows themselves
            needs[step.inputs[0]] |= set(steps[step.inputs[0]].schema.names)
        case plan.Window() | plan.Session() | plan.Count() | plan.Running() as keyed:
            read = {*keyed.by, *(c for a in keyed.aggregates for c in a.columns)}
            needs[step.inputs[0]] |= read | _diverted(step, 0, keyed.late, steps)
        case plan.Join() | plan.Pairs() | plan.Matched() as join:
            own, read = dict(join.right), mine | _compared(join)
            needs[step.inputs[0]] |= {*join.on, *(n for n in read if n not in own)} | _diverted(step, 0, join.late, steps)
            needs[step.inputs[1]] |= {*join.on, *(own[n] for n in read if n in own)} | _diverted(step, 1, join.late, steps)
        case plan.Grouping(by, aggregates, key):
            needs[step.inputs[0]] |= {*by, *key, *(c for a in aggregates for c in a.columns)}
        case plan.Latest():
            needs[step.inputs[0]] |= mine
        case plan.TableJoin(on, _, right, keys):
            own = dict(right)
            needs[step.inputs[0]] |= {*on, *keys[0], *(n for n in mine if n not in own)}
            needs[step.inputs[1]] |= {*on, *keys[1], *(own[n] for n in mine if n in own)}
        case plan.Enrich(on, key, _, _, right) as enrich:
            own, version = dict(right), set(enrich.version or ())
            needs[step.inputs[0]] |= {*on, *(n for n in mine if n not in own and n not in version)}
            needs[step.inputs[1]] |= {*key, *(own[n] for n in mine if n in own)}
        case _:
            pass


def _compared(join: plan.StreamJoin) -> set[str]:
    """The columns of the joined row that its condition reads, whether or not they come out."""
    return set(join.condition.columns) if join.condition else set()


def _diverted(step: plan.Step, port: int, late: str, steps: dict[str, plan.Step]) -> set[str]:
    """Diverted rows are kept whole, unless the flow itself says with `.late` which of their columns it wants."""
    used = any(isinstance(s.definition, plan.LateRows) and s.inputs == (step.name,) for s in steps.values())
    whole = steps[step.inputs[port]].schema.names
    return set(whole) if late in ("divert", "correct") and not used else set()


def _narrowed(step: plan.Step, needed: set[str]) -> plan.Step:
    definition = step.definition
    if isinstance(definition, plan.Source):
        needed = needed | set(definition.reads) | _naming(definition.versions)
    schema = Schema(pa.schema([f for f in step.schema if f.name in needed]))
    if isinstance(definition, plan.Source):
        definition = replace(definition, columns=tuple(schema.names))
    elif isinstance(definition, plan.Select):
        definition = replace(definition, columns=tuple(c for c in definition.columns if c[0] in needed))
    elif isinstance(definition, plan.StreamJoin):
        read = needed | _compared(definition)
        definition = replace(definition, right=tuple(r for r in definition.right if r[0] in read))
    elif isinstance(definition, plan.TableJoin | plan.Enrich):
        definition = replace(definition, right=tuple(r for r in definition.right if r[0] in needed))
    return replace(step, definition=definition, schema=schema)


def _naming(versions: plan.Versions | None) -> set[str]:
    """The columns that say which row of a table is meant, and what becomes of it."""
    return {*versions.key, *((versions.op,) if versions.op else ())} if versions else set()
