"""What an action is, and how it says that it did not work."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol


@dataclass(frozen=True)
class Intent:
    """A row that is to become an action."""

    offset: int  # in the outbox
    key: str  # the idempotency key
    row: Mapping[str, Any]  # its columns as Python has them
    json: bytes  # the same as a JSON object
    time: int  # the row's event time, microseconds
    lane: bytes | None = None  # intents that share one go out one after the other


class NotDone(Exception):
    """An action that did not work; it is tried again. `after`: the receiver asked to be left alone for so long."""

    def __init__(self, reason: str, after: timedelta | None = None) -> None:
        super().__init__(reason)
        self.reason, self.after = reason, after


class Unavailable(NotDone):
    """The receiver cannot be reached now, or says so: no fault of the row's."""


class Refused(NotDone):
    """Another try would not help: the row becomes a dead letter at once. A function that `call` was given may raise it."""


class Action(Protocol):
    """Does one thing for a row. `do` is called from several threads at once."""

    @property
    def called(self) -> str:
        """For people, without secrets: webhook hooks.example.com."""
        ...

    def open(self) -> None:
        """Called at every start, before the first `do`: reads secrets, checks what can be checked without the receiver."""
        ...

    def do(self, intent: Intent) -> None:
        """Returns once the receiver has taken it; else NotDone, Unavailable or Refused. Anything else counts as NotDone."""
        ...

    def close(self) -> None:
        """May be called before `open`, and twice."""
        ...
