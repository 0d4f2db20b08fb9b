"""Column pruning: every step gives only what some step or output below it reads."""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from penstock.core.schema import Schema
from penstock.plan import Output, Plan, Step


def prune(flow: str, steps: Sequence[Step], outputs: Sequence[Output]) -> tuple[Step, ...]:
    """The same steps without the columns that nobody reads."""
    whole = Plan(flow, tuple(steps), tuple(outputs))
    needs: dict[str, set[str]] = {step.name: set() for step in steps}
    for output in outputs:
        needs[output.input] |= set(whole.step(output.input).schema.names)
    reached = _reached(whole)
    tapped = {step.inputs[0] for step in steps if step.node.tap is not None}
    for step in reversed(reached):
        needs[step.name] |= step.node.always(step.schema.names)
        feeds = whole.feeds(step)
        above = [whole.step(name).schema.names for name in feeds]
        diverted = step.diverts and step.name not in tapped  # then late rows are kept whole: nobody says which columns are wanted
        for name, columns, names in zip(feeds, step.node.reads(needs[step.name], above), above, strict=True):
            needs[name] |= {*names} if diverted else columns
    made: dict[str, Step] = {}
    for step in reached:
        if step.node.keeps_columns:
            made[step.name] = replace(step, schema=made[step.inputs[0]].schema)
        else:
            made[step.name] = _narrowed(step, needs[step.name])
    return tuple(made.values())


def _reached(plan: Plan) -> list[Step]:
    """The steps that some output needs: of a table, its versions and its current rows are rarely both."""
    wanted = {output.input for output in plan.outputs}
    for step in reversed(plan.steps):
        if step.name in wanted:
            wanted |= set(step.inputs)
    return [step for step in plan.steps if step.name in wanted]


def _narrowed(step: Step, needed: set[str]) -> Step:
    schema = Schema(pa.schema([f for f in step.schema if f.name in needed]))
    return replace(step, node=step.node.narrowed(schema.names), schema=schema)
