"""State from events: all of them, some of them, or those behind a snapshot."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from penstock.core.time import micros, text
from penstock.errors import NotFound, OffsetGone
from penstock.events.aggregate import Aggregate, fold, initial
from penstock.events.event import Recorded, StoredEvent
from penstock.events.history import Step, compare, parts
from penstock.events.port import Streams
from penstock.events.snapshots import Snapshot, SnapshotStore, restored
from penstock.events.types import EventTypes

S = TypeVar("S")
_HINT = "read what is left of it with read()"


class Replay:
    """Folds the events of streams."""

    def __init__(self, port: Streams, types: EventTypes, snapshots: SnapshotStore | None) -> None:
        self._port, self._types, self._snapshots = port, types, snapshots

    def events(self, stream: str, start: int, stop: int | None, until: int | None) -> list[Recorded[Any]]:
        """Of these versions and before this moment; those that are skipped left out."""
        found = [stored for stored in self._port.read(stream, start, stop) if until is None or stored.at < until]
        return [Recorded.of(stored, event) for stored in found if (event := self._types.decode(stored)) is not None]

    def state(self, kind: type[S], id: str, version: int | None = None, until: int | None = None) -> S:
        """After the events up to a version and before a moment."""
        snapshot = self._snapshot(kind, id, version, until)
        found = self._port.read(id, snapshot.version if snapshot else 1, version)
        if snapshot and not (found and (found[0].version, found[0].id) == (snapshot.version, snapshot.event)):
            snapshot, found = None, self._port.read(id, 1, version)  # it was made of other events
        _refuse_gaps(id, found, version, snapshot)
        some = [stored for stored in found if until is None or stored.at < until]
        made = self._folded(kind, id, snapshot, some)
        if self._snapshots and isinstance(made, Aggregate) and some and version is None and until is None:
            self._snapshots.offer(made, some[-1], snapshot)
        return made

    def steps(self, kind: type[Any], stream: str) -> Iterator[Step[Any]]:
        """Every event, and what it changed."""
        events = self.events(stream, 1, None, None)
        if events and events[0].version != 1:
            raise _no_beginning(stream, events[0].version, micros(events[0].at))
        state = initial(kind, stream)
        before = parts(state)
        for recorded in events:
            state = fold(state, [recorded.event])
            after = parts(state)
            yield Step(recorded, compare(before, after))
            before = after

    def _snapshot(self, kind: type[S], id: str, version: int | None, until: int | None) -> Snapshot | None:
        if not self._snapshots or not issubclass(kind, Aggregate):
            return None
        found = self._snapshots.latest(kind, id)
        usable = found and (version is None or found.version <= version) and (until is None or found.at < until)
        return found if usable else None

    def _folded(self, kind: type[S], id: str, snapshot: Snapshot | None, found: Sequence[StoredEvent]) -> S:
        behind = found[1:] if snapshot else found
        start: S = restored(kind, id, snapshot) if snapshot else initial(kind, id)  # type: ignore[type-var]
        made = fold(start, (event for stored in behind if (event := self._types.decode(stored)) is not None))
        if isinstance(made, Aggregate) and behind:
            made.version = behind[-1].version
        return made


def _no_beginning(id: str, first: int, at: int) -> OffsetGone:
    what = f"stream {id!r} begins at version {first}: what was before was removed"
    return OffsetGone(what, f"the oldest event that is there is of {text(at)}", hint=_HINT)


def _refuse_gaps(id: str, found: Sequence[StoredEvent], version: int | None, snapshot: Snapshot | None) -> None:
    first, last = (found[0].version, found[-1].version) if found else (1, 0)
    if version is not None and last < version:
        raise NotFound(f"stream {id!r} has no version {version}", f"it is at version {last}")
    if first != 1 and not snapshot:
        raise _no_beginning(id, first, found[0].at)
    if last - first + 1 != len(found):
        raise OffsetGone(f"stream {id!r} lacks some of its events: they were compacted away", hint=_HINT)
