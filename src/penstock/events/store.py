"""An event store as users see it: append, read, load, save, and the state at any version or moment."""

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.core.position import Position
from penstock.core.record import Record
from penstock.core.time import instant, micros
from penstock.errors import BadInput, NotFound, VersionConflict
from penstock.events.aggregate import Aggregate
from penstock.events.event import About, Append, Changes, NewEvent, Recorded, Written
from penstock.events.expected import ANY, NEW, Version, check_expected
from penstock.events.history import Step
from penstock.events.on_log.rows import stored_in
from penstock.events.on_log.streams import open_streams
from penstock.events.port import StreamInfo, Streams
from penstock.events.projecting import project
from penstock.events.replaying import Replay
from penstock.events.snapshots import Snapshots, SnapshotStore
from penstock.events.types import EventTypes, Kinds, Unknown
from penstock.events.upcasting import Upcaster
from penstock.log.open import open_log
from penstock.log.port import Log

if TYPE_CHECKING:
    from penstock.flow.graph import FlowGraph
    from penstock.flow.stream import Stream

A = TypeVar("A", bound=Aggregate)
S = TypeVar("S")
Time = str | datetime


SNAPSHOTS = ".snapshots"  # how the topics of snapshots end


def snapshots_of(name: str) -> str:
    """The topic of a store's snapshots."""
    return f"{name}{SNAPSHOTS}"


TRIES = 10  # of a command that meets a conflict each time


class EventStore:
    """Streams of events. State is what replaying them gives.

    >>> store = EventStore.open("carts", events=[ItemAdded, ItemRemoved])  # doctest: +SKIP
    >>> store.append("cart-1", [ItemAdded("A")], expected=NEW)  # doctest: +SKIP
    >>> store.load(Cart, "cart-1").items  # doctest: +SKIP

    Safe to use from several threads, and on the log from several processes."""

    def __init__(self, port: Streams, types: EventTypes, snapshots: SnapshotStore | None = None) -> None:
        self.port, self._types = port, types
        self._replay = Replay(port, types, snapshots)

    @classmethod
    def open(
        cls,
        name: str,
        events: Kinds = (),
        *,
        upcasters: Iterable[Upcaster] = (),
        unknown: Unknown = "error",
        snapshots: Snapshots | None = None,
        partitions: int = 1,
        log: Log | str | None = None,
        home: Path | None = None,
    ) -> "EventStore":
        """The store of this name; its topic is made if it is not there.

        events: the classes of all its events, frozen dataclasses. upcasters: what makes events of old forms into these. unknown:
        what becomes of any other event when it is read, "error" or "skip". snapshots: when loaded aggregates are kept, so that
        their events need not be folded again. partitions: of a new store; streams in one of them can be appended to together.
        log: a log, or its URL; by default the embedded one of this home (None: the one that the working directory leads to)."""
        found = open_log(home, log) if log is None or isinstance(log, str) else log
        types = EventTypes(events, unknown, upcasters)
        kept = SnapshotStore(open_streams(found, snapshots_of(name), compact=True), snapshots, types.forms) if snapshots else None
        return cls(open_streams(found, name, partitions), types, kept)

    def append(
        self,
        stream: str,
        events: Sequence[Any],
        expected: Version = ANY,
        *,
        ids: Sequence[str] | None = None,
        at: Time | None = None,
        who: str | None = None,
        correlation: str | None = None,
        causation: str | None = None,
    ) -> Written:
        """Adds events to a stream: all of them or none. VersionConflict, with the version of the stream and the events that were
        missed, where it is not at the version expected: a number, NEW, EXISTS, or ANY.

        ids: of the events; those that the stream has already are not added again, and that is success. at: when they happened; now
        if it is not given, and never before the event that stands before them."""
        changes = Changes(stream, events, expected, ids)
        return self.append_together([changes], at=at, who=who, correlation=correlation, causation=causation)[0]

    def append_together(
        self,
        changes: Sequence[Changes],
        *,
        at: Time | None = None,
        who: str | None = None,
        correlation: str | None = None,
        causation: str | None = None,
    ) -> list[Written]:
        """Adds events to several streams: all of them or none. BadInput where the streams lie in several partitions."""
        when = None if at is None else micros(instant(at))
        return self._written([self._append(one, when, About(who, correlation, causation)) for one in changes])

    def read(self, stream: str, from_version: int = 1, to: int | None = None, at: Time | None = None) -> list[Recorded[Any]]:
        """The events of a stream in order: from one version to another, both included, and those before a moment."""
        return self._replay.events(stream, from_version, to, None if at is None else micros(instant(at)))

    def load(self, kind: type[A], id: str) -> A:
        """The aggregate as its events have made it; NotFound if nothing has ever happened to it."""
        made = self._replay.state(kind, id)
        if not made.version:
            raise NotFound(f"there is no stream {id!r}", hint=f"make a new one: {kind.__name__}({id!r}), and save it")
        return made

    def save(self, aggregate: A, retry: Callable[[A], object] | None = None, **about: str | None) -> Position | None:
        """Appends what the aggregate has recorded; None if there is nothing. Returns the position of the last event, which
        `View.wait_for` takes: views come to hold it later. If somebody else was first, VersionConflict; with `retry`, that command
        is given the aggregate as it is now, and what it records is appended instead. about: who, correlation, causation."""
        for _ in range(TRIES if retry else 1):
            try:
                return self._saved(aggregate, About(**about))
            except VersionConflict as conflict:
                if retry is None:
                    raise
                lost = conflict
            self._renew(aggregate)
            retry(aggregate)
        raise lost

    def run(self, kind: type[A], id: str, command: Callable[[A], object], **about: str | None) -> Position | None:
        """Loads an aggregate, or makes a new one, gives it to a command, and saves what that records; again if somebody else was
        first. The command may be called several times, each time with the aggregate as it is then."""
        aggregate = self._replay.state(kind, id)
        command(aggregate)
        return self.save(aggregate, retry=command, **about)

    def state(self, kind: type[S], id: str, *, at: Time | None = None, version: int | None = None) -> S:
        """What the events of a stream give: all of them, those up to a version, or those before a moment. kind: an Aggregate, or
        any class that is made without arguments and has a method `apply(event)`."""
        if at is not None and version is not None:
            raise BadInput("a state is asked for at a version or at a moment, not at both")
        return self._replay.state(kind, id, version, None if at is None else micros(instant(at)))

    def history(self, kind: type[Any], stream: str) -> list[Step[Any]]:
        """Every event of a stream, who caused it and when, and what it changed in the state that `kind` folds."""
        return list(self._replay.steps(kind, stream))

    @property
    def name(self) -> str:
        """Also that of its topic."""
        return self.port.name

    def event_of(self, record: Record) -> Recorded[Any] | None:
        """The event that a consumer of the topic has read; None if it is unknown and such are skipped."""
        stored = stored_in(record)
        event = self._types.decode(stored)
        return None if event is None else Recorded.of(stored, event)

    def stream(self, flow: "FlowGraph", *kinds: type[Any], lateness: str | timedelta | None = None) -> "Stream":
        """The events as a stream of a flow: stream, version, event, id, at, who, correlation and causation, and a column for every
        field that the events have. kinds: only events of these classes; an aggregate, or nothing: all. An event that the program
        does not know is a dead letter, unless unknown events are skipped. lateness: as of any stream."""
        return project(flow, self.name, self._types, kinds, lateness)

    def version(self, stream: str) -> int:
        """The version of the last event; 0 if there is no such stream."""
        return self.port.version(stream)

    def streams(self) -> Iterator[StreamInfo]:
        """All streams, by name. Reads the whole topic."""
        return self.port.streams()

    def _append(self, changes: Changes, at: int | None, about: About) -> Append:
        ids = changes.ids
        if isinstance(changes.events, str | bytes) or (ids is not None and len(ids) != len(changes.events)):
            raise BadInput("events are a list, and ids, if they are given, as many as events")
        events = tuple(
            NewEvent(*form, data, ids[place] if ids else uuid.uuid4().hex, at, about, fresh=ids is None)
            for place, (form, data) in enumerate(map(self._types.encode, changes.events))
        )
        return Append(changes.stream, events, check_expected(changes.expected))

    def _written(self, appends: Sequence[Append]) -> list[Written]:
        try:
            return self.port.append(appends)
        except VersionConflict as conflict:
            known = conflict.expected if isinstance(conflict.expected, int) else 0
            missed = self.read(conflict.stream, known + 1, conflict.actual) if conflict.actual > known else []
            raise VersionConflict(conflict.stream, conflict.expected, conflict.actual, missed) from None

    def _saved(self, aggregate: Aggregate, about: About) -> Position | None:
        if not aggregate.recorded:
            return None
        changes = Changes(aggregate.id, aggregate.recorded, aggregate.version or NEW, aggregate.event_ids)
        written = self._written([self._append(changes, None, about)])[0]
        aggregate.version, aggregate.recorded, aggregate.event_ids = written.version, [], []
        return written.position

    def _renew(self, aggregate: Aggregate) -> None:
        """Makes an aggregate what its events say, in place: its owner holds it."""
        fresh = self._replay.state(type(aggregate), aggregate.id)
        aggregate.__dict__.clear()
        aggregate.__dict__.update(fresh.__dict__)
