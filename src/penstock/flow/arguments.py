"""Checks of what a user gives to a function, made where it is written: the message names that place."""

from typing import Any, NoReturn

import pyarrow as pa

from penstock.core.schema import Schema
from penstock.errors import BadFlow, BadInput
from penstock.plan.origin import origin


def refuse(what: str, hint: str) -> NoReturn:
    raise BadFlow(what, str(origin()), hint=hint)


def text(given: Any, what: str, hint: str) -> str:
    """What is not empty; `what` says in the message what cannot be done."""
    return given if isinstance(given, str) and given.strip() else refuse(f"{what} {given!r}", hint)


def flag(given: Any, name: str) -> bool:
    return (
        given
        if isinstance(given, bool)
        else refuse(f"{name}={given!r} is neither True nor False", f"write {name}=True, or leave it out")
    )


def number(given: Any, least: float, most: float, what: str) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not least <= given <= most:
        refuse(f"{what}={given!r} is out of range", f"give a number from {least:.6g} to {most:.6g}")
    return float(given)


def function(given: Any, name: str) -> Any:
    return given if callable(given) else refuse(f"{name}={given!r} is no function", f"give a function, e.g. {name}=lambda …: …")


def type_of(given: Any, name: str) -> pa.DataType:
    """A type as DDL writes it or as Arrow has it, if a column can have it."""
    try:
        if isinstance(given, pa.DataType):
            return Schema.from_arrow(pa.schema([("value", given)])).type("value")
        return Schema.from_ddl(f"value {given}").type("value")
    except BadInput as error:
        raise BadFlow(
            f"{name}={given!r} is no type that a column can have", str(origin()), hint='write it like "double"'
        ) from error
