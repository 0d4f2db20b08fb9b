"""The events that a program knows: frozen dataclasses, each with a name and the number of its form."""

import dataclasses
import types
import typing
from collections.abc import Iterable
from typing import Any, Literal

import orjson

from penstock.errors import BadInput, Damaged, NotFound
from penstock.events.event import StoredEvent
from penstock.events.fields import Fields, encode
from penstock.events.upcasting import Form, Upcaster, Upcasting

Unknown = Literal["error", "skip"]
Kinds = Iterable[Any]


def form_of(kind: type[Any]) -> Form:
    """What a class says of itself: NAME, else the name of the class; NUMBER, else 1."""
    return Form(str(getattr(kind, "NAME", kind.__name__)), int(getattr(kind, "NUMBER", 1)))


class EventTypes:
    """Turns events into what is stored, and back.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Opened:
    ...     door: str
    >>> EventTypes([Opened]).encode(Opened("front"))
    (Form(name='Opened', number=1), '{"door":"front"}')
    """

    def __init__(self, kinds: Kinds = (), unknown: Unknown = "error", upcasters: Iterable[Upcaster] = ()) -> None:
        """kinds: the classes, or unions of them. unknown: what becomes of an event of another form when it is read, if no chain of
        upcasters leads from it to one of the classes."""
        if unknown not in ("error", "skip"):
            raise BadInput(f"unknown events can be an error or be skipped, not {unknown!r}", hint='unknown="error" or "skip"')
        self._unknown = unknown
        self._fields: dict[Form, Fields] = {}
        self._forms: dict[type[Any], Form] = {}
        for kind in _classes(kinds):
            self._add(kind)
        self._upcasting = Upcasting(upcasters, self._fields)

    @property
    def forms(self) -> list[Form]:
        """All that the program knows."""
        return sorted(self._fields)

    @property
    def skips(self) -> bool:
        """Whether unknown events are skipped."""
        return self._unknown == "skip"

    @property
    def kinds(self) -> list[type[Any]]:
        """The classes, as they were given."""
        return list(self._forms)

    def chosen(self, kinds: Iterable[type[Any]]) -> list[type[Any]]:
        """These classes of events; all, where none is named, or a class that folds them; BadInput for any other."""
        for kind in kinds:
            if kind not in self._forms and not callable(getattr(kind, "apply", None)):
                raise BadInput(f"{kind!r} is neither an event of this store nor a class that folds them")
        return [kind for kind in kinds if kind in self._forms] or self.kinds

    def names_of(self, kinds: Iterable[type[Any]]) -> set[str]:
        """How events of these classes may be named where they are stored: those that upcasters make into them as well."""
        return self._upcasting.names_before({self._forms[kind] for kind in kinds if kind in self._forms})

    def encode(self, event: Any) -> tuple[Form, str]:
        """Form and fields of an event; BadInput if the program did not say that there are such events."""
        form = self._forms.get(type(event))
        if form is None:
            raise BadInput(
                f"the store was not told of events of the class {type(event).__name__}",
                f"it knows {', '.join(sorted(kind.__name__ for kind in self._forms)) or 'none'}",
                hint="name all of them when you open it: EventStore.open(name, events=[…])",
            )
        return form, encode(event)

    def decode(self, stored: StoredEvent) -> Any | None:
        """The event, as of today; None if it is unknown and such are skipped."""
        form = Form(stored.name, stored.number)
        try:
            data = orjson.loads(stored.data)
            form, data = self._upcasting.current(form, data) if self._upcasting else (form, data)
            if form in self._fields:
                return self._fields[form].read(data)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            what = f"event {form} at version {stored.version} of stream {stored.stream!r} does not fit its class"
            hint = f"its fields changed: give the class a higher NUMBER than {form.number}, and an upcaster from {form.number}"
            raise Damaged(what, f"{stored.position}: {error}", hint=hint) from error
        if self._unknown == "skip":
            return None
        raise self._not_known(form, stored)

    def _not_known(self, form: Form, stored: StoredEvent) -> NotFound:
        return NotFound(
            f"stream {stored.stream!r} has an event that the program does not know: {form}",
            f"version {stored.version}, at {stored.position}; known are {', '.join(map(str, sorted(self._fields))) or 'none'}",
            hint='name its class when you open the store, or skip such events: unknown="skip"',
        )

    def _add(self, kind: type[Any]) -> None:
        if not dataclasses.is_dataclass(kind) or not kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
            raise BadInput(f"{kind.__name__} is no event: events are frozen dataclasses", hint="@dataclass(frozen=True)")
        form = form_of(kind)
        if form in self._fields and self._forms.get(kind) != form:
            raise BadInput(f"two classes are the event {form}", hint="give one of them a NAME, or a higher NUMBER")
        self._fields[form], self._forms[kind] = Fields(kind), form


def _classes(kinds: Kinds) -> list[type[Any]]:
    """Classes as they are, unions as their members."""
    given = [kinds] if isinstance(kinds, types.UnionType) else list(kinds)
    flat = [member for kind in given for member in (typing.get_args(kind) or (kind,))]
    for kind in flat:
        if not isinstance(kind, type):
            raise BadInput(f"{kind!r} is no class of events", hint="events=[ItemAdded, ItemRemoved]")
    return flat
