"""Snapshots: the state of an aggregate after some of its events, so that not all of them are folded again.

They save time and decide nothing. One is used only if the code that made it is the code that reads it, and if the stream still has
the event that it was made after; otherwise the events are folded. All of them can be thrown away at any time.
"""

import inspect
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from hashlib import blake2b
from types import CodeType
from typing import Any, TypeVar

import orjson

from penstock.core.time import Clock, SystemClock, duration, micros
from penstock.errors import BadInput, PenstockError
from penstock.events.aggregate import Aggregate
from penstock.events.event import Append, NewEvent, StoredEvent
from penstock.events.expected import ANY
from penstock.events.port import Streams
from penstock.events.upcasting import Form

A = TypeVar("A", bound=Aggregate)


@dataclass(frozen=True)
class Snapshots:
    """When a snapshot is made: after so many events since the last one, or when that is so old and there are new events."""

    every: int | None = 100
    age: str | timedelta | None = None

    def __post_init__(self) -> None:
        if self.every is not None and self.every < 1:
            raise BadInput(f"a snapshot cannot be made every {self.every} events", hint="give a number from 1 on, or None")
        if self.age is not None:
            duration(self.age, "age of a snapshot")

    def due(self, events: int, since: int) -> bool:
        """events: how many there are behind the last snapshot; since: microseconds since it was made."""
        old = self.age is not None and since >= micros(duration(self.age))
        return events > 0 and (old or (self.every is not None and events >= self.every))


@dataclass(frozen=True)
class Snapshot:
    """The state after the event of this version and id; made at a moment by code of this fingerprint."""

    version: int
    event: str
    at: int  # when that event happened, microseconds
    made: int
    code: str
    state: Any


class SnapshotStore:
    """The snapshots of a store, as streams of their own; the last one of each counts."""

    def __init__(self, streams: Streams, policy: Snapshots, forms: Sequence[Form], clock: Clock | None = None) -> None:
        self._streams, self._policy, self._forms, self._clock = streams, policy, forms, clock or SystemClock()

    def latest(self, kind: type[Aggregate], id: str) -> Snapshot | None:
        """The last snapshot that this code made of the aggregate; None if there is none, or it cannot be read."""
        name = _name(kind, id)
        with suppress(PenstockError, ValueError, KeyError, TypeError):
            version = self._streams.version(name)
            for stored in self._streams.read(name, version, version) if version else ():
                found = Snapshot(**orjson.loads(stored.data))
                return found if found.code == self.code_of(kind) else None
        return None

    def offer(self, aggregate: Aggregate, last: StoredEvent, known: Snapshot | None) -> bool:
        """Makes a snapshot of an aggregate that stands behind its last event, if it is time for one. Whether it did. A disk that
        takes none only costs time."""
        since = (known.made if known else last.at) if known or self._policy.age else self._clock.now()
        if not self._policy.due(last.version - (known.version if known else 0), self._clock.now() - since):
            return False
        with suppress(PenstockError):
            self.put(aggregate, last)
            return True
        return False

    def put(self, aggregate: Aggregate, last: StoredEvent) -> None:
        """Makes a snapshot; BadInput if the state is another one when it is read."""
        kind, state = type(aggregate), aggregate.dump()
        made = Snapshot(last.version, last.id, last.at, self._clock.now(), self.code_of(kind), state)
        try:
            data = orjson.dumps(made)
            same = restored(kind, aggregate.id, Snapshot(**orjson.loads(data))).dump() == state
        except (TypeError, ValueError) as error:
            raise _unstorable(kind, str(error)) from error
        if not same:
            raise _unstorable(kind, "what is read is not what was written")
        event = NewEvent("Snapshot", 1, data.decode(), f"{last.version}-{made.code}", None)
        self._streams.append([Append(_name(kind, aggregate.id), (event,), ANY)])

    def code_of(self, kind: type[Aggregate]) -> str:
        """A fingerprint of the code that folds: the methods of the class and of its bases, the number STATE, the events."""
        digest = blake2b(digest_size=16)
        for part in (sys.version, str(getattr(kind, "STATE", 1)), *map(str, self._forms), *_code_in(kind)):
            digest.update(part.encode(errors="surrogatepass") + b"\0")
        return digest.hexdigest()


def restored(kind: type[A], id: str, snapshot: Snapshot) -> A:
    """The aggregate as it was when the snapshot was made."""
    made = kind(id)
    made.restore(snapshot.state)
    made.version = snapshot.version
    return made


def _code_in(kind: type[Any]) -> Iterator[str]:
    for base in inspect.getmro(kind)[:-1]:
        yield f"{base.__module__}.{base.__qualname__}"
        for name, value in sorted(vars(base).items()):
            function = inspect.unwrap(getattr(value, "__func__", getattr(value, "fget", value)))
            if isinstance(code := getattr(function, "__code__", None), CodeType):
                yield f"{name} {_code_text(code)}"


def _code_text(code: CodeType) -> str:
    inner = [_code_text(const) if isinstance(const, CodeType) else repr(const) for const in code.co_consts]
    return f"{code.co_code.hex()} {inner} {code.co_names} {code.co_varnames}"


def _name(kind: type[Aggregate], id: str) -> str:
    return f"{id}#{kind.__qualname__}".replace("\0", "")


def _unstorable(kind: type[Aggregate], why: str) -> BadInput:
    return BadInput(
        f"the state of {kind.__name__} has no snapshot: {why}",
        hint="write its methods dump(), which gives what JSON can hold, and restore(state), which takes it back",
    )
