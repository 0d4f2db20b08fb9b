"""The fields of an event as JSON, and back: what types they may have, and how each is written."""

import base64
import dataclasses
import datetime as dt
import types
import typing
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import orjson

from penstock.errors import BadInput, BadRow

Read = Callable[[Any], Any]  # a JSON value -> a value of the field's type

_PLAIN = (str, bool, int, float, type(None), object, Any)
_TEXTS: dict[Any, Read] = {
    dt.datetime: dt.datetime.fromisoformat,
    dt.date: dt.date.fromisoformat,
    dt.time: dt.time.fromisoformat,
    Decimal: Decimal,
    UUID: UUID,
    bytes: base64.b64decode,
}
_LISTS = {list: list, tuple: tuple, set: set, frozenset: frozenset}


def _as_is(value: Any) -> Any:
    return value


def encode(event: Any) -> str:
    """The fields as a JSON object."""
    try:
        return orjson.dumps(event, default=written, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError as error:
        raise BadRow(f"event {type(event).__name__} cannot be stored", str(error)) from error


def written(value: Any) -> Any:
    """What stands for a value that JSON has no form of; TypeError if nothing does."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


class Fields:
    """Makes objects of one dataclass out of what `encode` wrote."""

    def __init__(self, kind: type[Any]) -> None:
        self._kind = kind
        hints = typing.get_type_hints(kind)
        found = [(f.name, reader(hints[f.name], f"{kind.__name__}.{f.name}")) for f in dataclasses.fields(kind) if f.init]
        self._readers = {name: read for name, read in found if read is not _as_is}

    def read(self, values: dict[str, Any]) -> Any:
        """The object; TypeError or ValueError where the values are not those of its fields."""
        for name, read in self._readers.items():
            if name in values:
                values[name] = read(values[name])
        return self._kind(**values)


def reader(hint: Any, where: str) -> Read:
    """What reads values of a type; BadInput if events cannot have it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in _PLAIN or origin is typing.Literal:
        return _as_is
    if hint in _TEXTS:
        return _TEXTS[hint]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return Fields(hint).read
    if origin in (typing.Union, types.UnionType):
        return _either(arguments, where)
    if (origin or hint) in _LISTS:
        return _several(_LISTS[origin or hint], arguments, where)
    if (origin or hint) is dict:
        return _mapping(arguments, where)
    raise BadInput(
        f"field {where} of an event has a type that cannot be stored: {getattr(hint, '__name__', hint)}",
        hint="use text, numbers, bool, times, Decimal, UUID, Enum, bytes, dataclasses, and lists, tuples, sets and dicts of them",
    )


def _either(kinds: tuple[Any, ...], where: str) -> Read:
    """A value that may be missing; of several types only where JSON tells them apart by itself."""
    some = [reader(kind, where) for kind in kinds if kind is not type(None)]
    if len(some) == 1:
        (read,) = some
        return read if read is _as_is else lambda value: None if value is None else read(value)
    if all(read is _as_is for read in some):
        return _as_is
    raise BadInput(f"field {where} of an event may have several types that look alike when stored", hint="give it one of them")


def _several(make: Callable[[Any], Any], arguments: tuple[Any, ...], where: str) -> Read:
    kinds = [kind for kind in arguments if kind is not Ellipsis]
    if make is tuple and len(kinds) > 1:
        each = [reader(kind, where) for kind in kinds]
        return lambda values: tuple(read(value) for read, value in zip(each, values, strict=True))
    read = reader(kinds[0], where) if kinds else _as_is
    return make if read is _as_is else lambda values: make([read(value) for value in values])


def _mapping(arguments: tuple[Any, ...], where: str) -> Read:
    key, value = (reader(kind, where) for kind in arguments) if arguments else (_as_is, _as_is)
    number = arguments[0] if arguments and arguments[0] in (int, float) else None  # keys are text in JSON
    read_key: Read = number or key
    if read_key is _as_is and value is _as_is:
        return _as_is
    return lambda values: {read_key(k): value(v) for k, v in values.items()}
