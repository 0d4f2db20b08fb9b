"""The steps that can be asked about later, as plain values: kept with every start of a flow."""

from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa

from penstock.core.schema import Schema, type_text
from penstock.core.time import micros
from penstock.flow import plan


def describe(checked: plan.Plan) -> list[dict[str, Any]]:
    """Steps with state that a view shows: what is needed to tell what is open in them without the flow's program."""
    out = []
    for step in checked.steps:
        views = [o.name for o in checked.outputs if o.kind == "view" and o.input == step.name]
        if isinstance(step.definition, plan.Keyed) and views and _plain(step.definition):
            out.append(
                {
                    "name": step.name,
                    "definition": encode(step.definition),
                    "ports": [{"name": i, "schema": checked.step(i).schema.ddl()} for i in step.inputs],
                    "output": step.schema.ddl(),
                    "views": views,
                }
            )
    return out


def encode(value: Any) -> Any:
    """A definition as JSON can hold it."""
    if is_dataclass(value) and not isinstance(value, type):
        return {"is": type(value).__name__, **{f.name: encode(getattr(value, f.name)) for f in fields(value)}}
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
    return getattr(plan, value["is"])(**given)


def _plain(definition: plan.Keyed) -> bool:
    """Functions of the user's own cannot be kept."""
    given = getattr(definition, "aggregates", ())
    return all(isinstance(o, str | int | float | bool | None) for a in given for o in a.options)
