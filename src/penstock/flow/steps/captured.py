"""Tables that a capture follows: what a flow leaves out of them is taken from the capture when the flow is checked."""

from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from penstock.core.schema import Schema
from penstock.flow.facts import CapturedTable
from penstock.flow.place import At, find

if TYPE_CHECKING:
    from penstock.flow.steps.tables import TableDefinition


def completed(table: "TableDefinition", at: At) -> "tuple[TableDefinition, Schema]":
    """The table with what the flow says of it and, where it says nothing, with what its capture says; and its columns."""
    facts = at.topics.get(table.topic) if at.topics is not None else None
    told = facts.table if facts else None
    if told:
        _check_key(table, told, at)
    if table.schema is not None and (table.key or told is None):
        return table, table.schema
    if told is None:
        _refuse_unknown(table, at)
    schema = table.schema if table.schema is not None else told.schema
    form = table.form if table.form != "detect" or table.op else "rows" if told.flat else "debezium"
    return replace(table, schema=schema, key=table.key or told.key, form=form, taken=True), schema


def _check_key(table: "TableDefinition", told: CapturedTable, at: At) -> None:
    """A change of another column than those of the key would leave the row under its old name."""
    if table.key and sorted(map(str.lower, table.key)) != sorted(map(str.lower, told.key)):
        named, known = ", ".join(table.key), ", ".join(told.key)
        at.refuse(
            f"cannot tell the rows of {table.topic} apart by {named}: its capture names them by {known}",
            hint="leave key= out; for the rows by other columns, group_by them",
        )
    lacking = [name for name in told.key if table.schema is not None and find(name, table.schema.names) is None]
    if lacking:
        at.refuse(
            f"cannot tell the rows of {table.topic} apart: column {lacking[0]!r} of their key is not declared",
            hint=f'declare it, too: "{lacking[0]} …"; or leave the schema out, and all columns are read as the capture has them',
        )


def _refuse_unknown(table: "TableDefinition", at: At) -> NoReturn:
    """Says why the columns of a table are not known, and what to do."""
    topic = table.topic
    give = f'give schema and key: flow.table("{topic}", "id long, …", key="id")'
    if at.topics is None:
        at.refuse(f"cannot read table {topic}: flow.test() has no log that knows its columns", hint=give)
    facts = at.topics.get(topic)
    if facts is None:
        at.refuse(
            f"cannot read table {topic}: there is no such topic, so its columns cannot be known",
            hint=f"run the capture that writes it first (penstock cdc run NAME; penstock cdc status lists them), or {give}",
        )
    if facts.capture is None:
        at.refuse(f"cannot read table {topic}: no capture writes this topic, so its columns cannot be known", hint=give)
    at.refuse(
        f"cannot read table {topic}: capture {facts.capture!r} has not finished a batch of it yet, so its columns cannot be known",
        hint=f"let it run for a while (penstock cdc run {facts.capture}), or {give}",
    )
