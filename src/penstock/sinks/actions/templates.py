"""Texts with columns in braces: "{user} spent {total}". Columns are all they can name; {{ and }} are braces."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import orjson

from penstock.errors import BadInput
from penstock.sinks.actions.port import Intent

Template = str | Mapping[str, Any] | list[Any]
_PART = re.compile(r"\{\{|\}\}|\{([^\W\d]\w*)\}|[{}]")


def values_of(intent: Intent) -> dict[str, Any]:
    """The columns of a row as JSON has them: times and decimals are texts."""
    found: dict[str, Any] = orjson.loads(intent.json)
    return found


def rendered(template: Any, values: Mapping[str, Any], escape: Callable[[str], str] = str) -> Any:
    """The template with its columns filled in; of objects and lists each text in them, so that no value breaks out of its own.
    escape: what is done to values before they stand in a text, as in HTML."""
    if isinstance(template, str):
        return _PART.sub(lambda part: part[0][0] if part[1] is None else escape(_word(values.get(part[1]))), template)
    if isinstance(template, Mapping):
        return {name: rendered(value, values, escape) for name, value in template.items()}
    return [rendered(value, values, escape) for value in template] if isinstance(template, list) else template


def check_template(template: Any, columns: Iterable[str], what: str) -> None:
    """Refuses a column that is not there, and braces that stand alone."""
    known = list(columns)
    for part in _parts(template):
        if part[0] in "{}":
            raise BadInput(f"the {what} has a brace that stands alone", hint="write {{ and }} for braces, {column} for a column")
        if part[1] is not None and part[1] not in known:
            raise BadInput(f"the {what} names a column that is not there: {part[1]}", hint=f"there are {', '.join(known)}")


def _parts(template: Any) -> Iterator[re.Match[str]]:
    if isinstance(template, str):
        yield from _PART.finditer(template)
    elif isinstance(template, Mapping | list):
        for value in template.values() if isinstance(template, Mapping) else template:
            yield from _parts(value)


def _word(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return orjson.dumps(value).decode()
