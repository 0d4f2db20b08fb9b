"""Aggregates: objects whose state is the fold of their events."""

import uuid
from collections.abc import Iterable
from typing import Any, TypeVar

from penstock.errors import BadInput

S = TypeVar("S")
_OWN = ("id", "version", "recorded", "event_ids")


class Aggregate:
    """One thing that events happen to. A class of yours says in `apply` what each event changes; its commands check what is asked
    for and `record` what happens.

    >>> class Door(Aggregate):
    ...     def __init__(self, id: str) -> None:
    ...         super().__init__(id)
    ...         self.open = False
    ...
    ...     def apply(self, event: object) -> None:
    ...         self.open = event == "opened"
    >>> door = Door("front")
    >>> door.record("opened")
    >>> door.open, door.recorded
    (True, ['opened'])
    """

    def __init__(self, id: str) -> None:
        self.id = id
        self.version = 0  # of the last event that the store has
        self.recorded: list[Any] = []  # what happened since
        self.event_ids: list[str] = []  # of these, so that one that is saved twice is stored once

    def apply(self, event: Any) -> Any:
        """Changes the state as the event says. Called for every event of the past, too: it must not refuse any."""
        raise NotImplementedError(f"{type(self).__name__} does not say what an event changes: write its method `apply`")

    def record(self, event: Any, id: str | None = None) -> None:
        """Applies an event and keeps it for `EventStore.save`. id: its own, if it has one; the same id is stored once."""
        self.apply(event)
        self.recorded.append(event)
        self.event_ids.append(id or uuid.uuid4().hex)

    def dump(self) -> Any:
        """The state for a snapshot, as JSON can hold it: every attribute of yours, where you say nothing else."""
        return {name: value for name, value in vars(self).items() if name not in _OWN}

    def restore(self, state: Any) -> None:
        """Takes back what `dump` gave."""
        vars(self).update(state)


def fold(state: S, events: Iterable[Any]) -> S:
    """The state after these events. `apply` changes the state, or returns the next one where states are immutable."""
    for event in events:
        following = state.apply(event)  # type: ignore[attr-defined]
        if following is not None:
            state = following
    return state


def initial(kind: type[S], id: str) -> S:
    """A thing to which nothing has happened yet: an Aggregate knows its id, any other class is made without arguments."""
    if not callable(getattr(kind, "apply", None)):
        raise BadInput(f"{getattr(kind, '__name__', kind)!r} cannot be folded: it has no method apply(event)")
    return kind(id) if issubclass(kind, Aggregate) else kind()
