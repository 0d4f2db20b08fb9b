"""The steps that can be asked about later, as plain values: kept with every start of a flow."""

from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Any

import orjson
import pyarrow as pa

from penstock import plan
from penstock.core import expression
from penstock.core.schema import Schema, type_text
from penstock.core.time import micros


def describe(checked: plan.Plan) -> list[dict[str, Any]]:
    """Steps with state: what is needed to bring it together, and to tell what is open in it, without the flow's program."""
    return [
        {
            "name": step.name,
            "definition": encode(step.node),
            "ports": [{"name": i, "schema": checked.step(i).schema.ddl()} for i in step.inputs],
            "output": step.schema.ddl(),
            "views": [o.definition.target for o in checked.outputs if o.kind == "view" and o.input == step.name],
        }
        for step in checked.steps
        if step.keyed and _plain(step.node)
    ]


def holders(checked: plan.Plan) -> dict[str, dict[str, Any]]:
    """Every step that may have state: what it is, and the columns by which it knows rows, its own key first."""
    found: dict[str, dict[str, Any]] = {}
    for step in checked.steps:
        keys = step.node.keyed_by()
        if step.keyed or keys:
            found[step.name] = {"what": step.node.family or "clocks", "keys": [list(columns) for columns in keys]}
    return found


def encode(value: Any) -> Any:
    """A definition as JSON can hold it."""
    if is_dataclass(value) and not isinstance(value, type):
        given = {f.name: getattr(value, f.name) for f in fields(value)}
        if given.get("implementation", value) is None:
            del given["implementation"]  # an aggregate of Penstock's own is found by name
        return {"is": type(value).__name__, **{name: encode(v) for name, v in given.items()}}
    if isinstance(value, timedelta):
        return {"is": "span", "us": micros(value)}
    if isinstance(value, pa.DataType):
        return {"is": "type", "text": type_text(value)}
    return [encode(v) for v in value] if isinstance(value, tuple | list) else value


def decode(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(decode(v) for v in value)
    if not isinstance(value, dict):
        return value
    if value["is"] == "span":
        return timedelta(microseconds=value["us"])
    if value["is"] == "type":
        return Schema.of(f"c {value['text']}").type("c")
    given = {name: decode(v) for name, v in value.items() if name != "is"}
    return getattr(expression if hasattr(expression, value["is"]) else plan, value["is"])(**given)


def _plain(definition: plan.Node) -> bool:
    """Whether a definition can be kept as JSON and read again: functions of the user's own cannot, nor steps."""
    try:
        return bool(decode(orjson.loads(orjson.dumps(encode(definition)))) == definition)
    except (TypeError, ValueError, AttributeError):
        return False
