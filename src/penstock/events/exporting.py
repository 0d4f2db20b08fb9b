"""A stream as a test: the events that happened, and the state behind each, as Python that pytest runs."""

import dataclasses
import datetime as dt
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from penstock.errors import BadInput
from penstock.events.aggregate import Aggregate, fold, initial
from penstock.events.event import Recorded
from penstock.events.history import plain

_TIMES = (dt.datetime, dt.date, dt.time)


class Code:
    """Values as Python, and what has to be imported for that."""

    def __init__(self) -> None:
        self.imports: set[str] = set()
        self.classes: set[type[Any]] = set()

    def of(self, value: Any) -> str:
        """An expression that gives the value; BadInput where there is none."""
        if value is None or (isinstance(value, str | bytes | bool | int | float) and not isinstance(value, Enum)):
            return repr(value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = (f"{f.name}={self.of(getattr(value, f.name))}" for f in dataclasses.fields(value) if f.init)
            return f"{self._named(type(value))}({', '.join(fields)})"
        if isinstance(value, Enum):
            return f"{self._named(type(value))}.{value.name}"
        if isinstance(value, Mapping):
            return "{" + ", ".join(f"{self.of(k)}: {self.of(v)}" for k, v in value.items()) + "}"
        return self._several(value) if isinstance(value, Sequence | set | frozenset) else self._text(value)

    def _several(self, value: Any) -> str:
        inner = ", ".join(map(self.of, value if isinstance(value, Sequence) else sorted(value, key=repr)))
        if isinstance(value, set | frozenset):
            return f"{type(value).__name__}([{inner}])"
        return f"({inner}{',' if len(value) == 1 else ''})" if isinstance(value, tuple) else f"[{inner}]"

    def _text(self, value: Any) -> str:
        kind = next((kind for kind in (*_TIMES, Decimal, UUID) if isinstance(value, kind)), None)
        if kind is None:
            hint = "let dump() give another form of it"
            raise BadInput(f"a {type(value).__name__} in an event or a state cannot be written as Python", hint=hint)
        self.imports.add(f"from {kind.__module__} import {kind.__name__}")
        made = f".fromisoformat({value.isoformat()!r})" if kind in _TIMES else f"({str(value)!r})"
        return f"{kind.__name__}{made}"

    def _named(self, kind: type[Any]) -> str:
        self.classes.add(kind)
        return kind.__name__


def as_test(kind: type[Any], stream: str, events: Sequence[Recorded[Any]], module: str) -> str:
    """A test that folds these events and expects the states that they gave. module: where the classes are imported from."""
    code, state = Code(), initial(kind, stream)
    code.classes.add(kind)
    lines = list[str]()
    for one in events:
        state = fold(state, [one.event])
        by = f", by {one.who}" if one.who else ""
        lines += [f"    # version {one.version}, {one.at.isoformat()}{by}", f"    ({code.of(one.event)}, {code.of(plain(state))}),"]
    names = ", ".join(sorted(found.__name__ for found in code.classes))
    start = f"{kind.__name__}({stream!r})" if issubclass(kind, Aggregate) else f"{kind.__name__}()"
    return "\n".join([
        f'"""What happened to {_safe(stream)}, as a test: run it with pytest where {module} can be imported."""',
        "",
        *sorted(code.imports),
        *([""] if code.imports else []),
        f"from {module} import {names}",
        "from penstock.events import fold",
        "from penstock.events.history import plain",
        "",
        "HAPPENED = [  # events, and the state behind each",
        *lines,
        "]",
        "",
        "",
        f"def test_{_identifier(stream)}_is_what_its_events_made_it() -> None:",
        f"    state = {start}",
        "    for event, expected in HAPPENED:",
        "        state = fold(state, [event])",
        "        assert plain(state) == expected",
        "",
    ])  # fmt: skip


def _safe(text: str) -> str:
    return text.replace("\\", "/").replace('"', "'")


def _identifier(text: str) -> str:
    return re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").lower() or "stream"
