"""Joins of two tables: the rows with equal columns, as they are now, and every change of them."""

from collections.abc import Sequence

from penstock import plan
from penstock.flow.definition import Known
from penstock.flow.place import At
from penstock.flow.steps.matching import joined_schema, meeting_columns, right_names
from penstock.flow.steps.tables import refuse_append_only

Names = Sequence[tuple[str, str]]


def table_join(at: At, left: Known, right: Known, on: Sequence[str], how: plan.How, doing: str) -> Known:
    """The checked step of a join of tables."""
    for side in (left, right):
        refuse_append_only(side, at, doing)
    on = meeting_columns(on, left, right, at, doing)
    names = () if how in ("semi", "anti") else right_names(on, left, right, at)
    key = output_key(on, how, left.view_key, right.view_key, names)
    if how == "full" and key == on and not (_never_null(left) and _never_null(right)):
        key = ()  # a row without partner of either side may have null there: the two are told apart by their positions
    schema = left.schema if how in ("semi", "anti") else joined_schema(on, names, left.schema, right.schema, how)
    clash = f"select other names on one side before the join, e.g. {right.label}.select(…)"
    at.new_columns(schema.names, doing, hint=clash)
    definition = plan.TableJoin(on, how, names, (left.view_key, right.view_key), key)
    step = plan.Step(at.name, (left.name, right.name), definition, schema, at.origin, updating=True)
    return Known((step,), at.name, key, key or on, (left, right))


def output_key(on: Sequence[str], how: str, left: Sequence[str], right: Sequence[str], names: Names) -> tuple[str, ...]:
    """The columns that name a row of the join; () = its position, where one side is named by nothing else.

    Where `on` holds the whole key of one side, that side has one row at most for each row of the other."""
    if how in ("semi", "anti"):
        return tuple(left)
    if not left or not right:
        return ()
    new = {own: name for name, own in names}
    theirs = tuple(new.get(name, name) for name in right)
    if set(left) <= set(on) and set(right) <= set(on):
        return tuple(on)
    if set(right) <= set(on) and how in ("inner", "left"):
        return tuple(left)
    if set(left) <= set(on) and how in ("inner", "right"):
        return theirs
    return tuple(dict.fromkeys((*left, *theirs)))


def _never_null(known: Known) -> bool:
    return known.step.node.key_never_null([_never_null(above) for above in known.inputs])
