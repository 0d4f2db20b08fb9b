"""Events: as a user gives them, as a store keeps them, and as they are read."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

from penstock.core.position import Position
from penstock.core.time import moment
from penstock.events.expected import ANY, Version

E = TypeVar("E")


class About(NamedTuple):
    """What is known of an event beside what happened: who caused it, in which conversation, and by which event or command."""

    who: str | None = None
    correlation: str | None = None
    causation: str | None = None


NOBODY = About()


@dataclass(frozen=True)
class NewEvent:
    """An event on its way into a store. fresh: its id was made just now, so that nobody can have used it before."""

    name: str
    number: int
    data: str  # JSON
    id: str
    at: int | None  # microseconds; None: now
    about: About = NOBODY
    fresh: bool = False


@dataclass(frozen=True)
class Append:
    """Events for one stream."""

    stream: str
    events: tuple[NewEvent, ...]
    expected: Version = ANY


class StoredEvent(NamedTuple):
    """An event as a store keeps it."""

    stream: str
    version: int
    name: str
    number: int
    id: str
    at: int
    data: str
    about: About
    position: Position


@dataclass(frozen=True)
class Recorded(Generic[E]):
    """An event that happened: what, in which stream, as which of its events, when, and what is known about it."""

    stream: str
    version: int
    event: E
    id: str
    at: datetime
    who: str | None
    correlation: str | None
    causation: str | None
    position: Position

    @classmethod
    def of(cls, stored: StoredEvent, event: E) -> "Recorded[E]":
        return cls(stored.stream, stored.version, event, stored.id, moment(stored.at), *stored.about, stored.position)


@dataclass(frozen=True)
class Written:
    """Where the last event of an append stands. duplicate: the store had these events already, and nothing was changed."""

    stream: str
    version: int
    position: Position
    duplicate: bool = False


@dataclass(frozen=True)
class Changes:
    """Events for one of several streams that are appended together."""

    stream: str
    events: Sequence[object]
    expected: Version = ANY
    ids: Sequence[str] | None = None
