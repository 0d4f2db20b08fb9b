"""The columns in which two inputs meet, and the names of those that the second one adds."""

import re
from collections.abc import Sequence

import pyarrow as pa

from penstock import plan
from penstock.core.schema import Schema, type_text
from penstock.flow.definition import Known
from penstock.flow.place import At, find


def meeting_columns(names: Sequence[str], left: Known, right: Known, at: At, doing: str) -> tuple[str, ...]:
    """The columns of `on`: of both sides, of one type, and fit for a key."""
    if not names:
        at.refuse(f"cannot {doing}: no column to join on", hint='name it, e.g. on="order_id"')
    on = at.columns(names, left.schema, f"{doing}: {left.label} lacks a column of `on`")
    for name in on:
        if at.column(name, right.schema, f"{doing}: {right.label} lacks a column of `on`") != name:
            other = find(name, right.schema.names)
            at.refuse(f"cannot {doing}: {name!r} is called {other!r} in {right.label}", hint="give it one name with select first")
        mine, theirs = left.schema.type(name), right.schema.type(name)
        if mine != theirs:
            at.refuse(
                f"cannot {doing}: {name!r} is {type_text(mine)} in {left.label} and {type_text(theirs)} in {right.label}",
                hint=f'bring both to one type first, e.g. with_columns({name}="cast({name} as {type_text(mine)})")',
            )
        at.keyable(name, left.schema, doing)
    return on


def right_names(on: Sequence[str], left: Known, right: Known, at: At) -> tuple[tuple[str, str], ...]:
    """Output name and own name of each column of the right side; colliding ones bear the side's name."""
    prefix = re.sub(r"\W", "_", right.label)
    own = [n for n in right.schema.names if n not in on]
    return tuple((n if find(n, left.schema.names) is None else at.new_name(f"{prefix}_{n}"), n) for n in own)


def joined_schema(on: Sequence[str], names: Sequence[tuple[str, str]], left: Schema, right: Schema, how: plan.How) -> Schema:
    """The row of both sides: `on` once, the left side, the right side under these names; null where a side may be missing."""
    keys = [left.arrow.field(n) for n in on]
    if how in ("right", "full"):
        keys = [f.with_nullable(right.arrow.field(f.name).nullable or (how == "full" and f.nullable)) for f in keys]
    mine = [left.arrow.field(n) for n in left.names if n not in on]
    theirs = [right.arrow.field(own).with_name(new) for new, own in names]
    if how in ("right", "full"):
        mine = [f.with_nullable(True) for f in mine]
    if how in ("left", "full"):
        theirs = [f.with_nullable(True) for f in theirs]
    return Schema(pa.schema([*keys, *mine, *theirs]))
