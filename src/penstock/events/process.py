"""Process managers: handlers of events that issue commands, each exactly once.

An event may be handed to its handler again, after a crash or by a member that took over. What its commands append has ids that are
made from the name of the manager, the event's position and the number of the command: a store has such an event once (G41).
"""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, TypeVar

from penstock.core.position import Position
from penstock.errors import NotFound, VersionConflict
from penstock.events.aggregate import Aggregate
from penstock.events.event import Recorded, Written
from penstock.events.expected import ANY, Version
from penstock.events.store import TRIES, EventStore
from penstock.log.groups.consumer import GroupConsumer, GroupSettings
from penstock.log.port import Log

A = TypeVar("A", bound=Aggregate)


class Commands:
    """What one event leads to. Commands are counted: a handler must issue the same ones in the same order for the same event."""

    def __init__(self, manager: str, event: Recorded[Any]) -> None:
        self._manager, self._event, self._issued = manager, event, 0

    def append(self, store: EventStore, stream: str, events: Sequence[Any], expected: Version = ANY) -> Written:
        """Adds events to a stream, once."""
        key = self._key()
        ids = [f"{key}.{number}" for number in range(len(events))]
        return store.append(stream, events, expected, ids=ids, **self._about())

    def run(self, store: EventStore, kind: type[A], id: str, command: Callable[[A], object]) -> Position | None:
        """Gives an aggregate to a command and saves what that records, once; None if it records nothing, or has done so before."""
        key = self._key()
        for _ in range(TRIES):
            if any(event.id.startswith(f"{key}.") for event in store.port.read(id)):
                return None
            aggregate = store.state(kind, id)
            command(aggregate)
            aggregate.event_ids = [f"{key}.{number}" for number in range(len(aggregate.recorded))]
            try:
                return store.save(aggregate, None, **self._about())
            except VersionConflict as conflict:
                lost = conflict
        raise lost

    def _key(self) -> str:
        self._issued += 1
        text = f"{self._manager}\0{self._event.position}\0{self._event.id}\0{self._issued}"
        return blake2b(text.encode(), digest_size=16).hexdigest()

    def _about(self) -> dict[str, str | None]:
        """The commands belong to the conversation of the event, and follow from it."""
        return {"who": self._manager, "correlation": self._event.correlation or self._event.id, "causation": self._event.id}


Handler = Callable[[Recorded[Any], Commands], object]


class ProcessManager:
    """Hands the events of a store to a handler, in the order of each partition; several processes share the partitions."""

    def __init__(self, name: str, store: EventStore, handle: Handler, log: Log | None = None) -> None:
        """name: also that of the group that remembers how far it has come. log: the store's; by default that of the home."""
        self.name, self._store, self._handle, self._log = name, store, handle, log

    def run(self, follow: bool = True, settings: GroupSettings | None = None) -> int:
        """Handles events on and on, or with follow=False those that are there; how many."""
        handled = 0
        with GroupConsumer(self._log, self.name, self._store.name, settings=settings) as consumer:
            for record in consumer.records(follow):
                event = self._store.event_of(record)
                if event is not None:
                    self._handle(event, Commands(self.name, event))
                    handled += 1
        return handled

    def handle(self, stream: str, version: int) -> None:
        """Hands one event to the handler again: what was done is not done twice."""
        for event in self._store.read(stream, version, version):
            self._handle(event, Commands(self.name, event))
            return
        raise NotFound(f"stream {stream!r} has no event of version {version}")
