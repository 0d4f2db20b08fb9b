"""Event stores as commands open them: the one that is named, or the only one; and the classes in a user's file."""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

from penstock.cli.flow.load import load_file
from penstock.errors import BadInput, NotFound
from penstock.events.aggregate import Aggregate
from penstock.events.on_log.streams import LogStreams, open_streams
from penstock.events.store import SNAPSHOTS, EventStore
from penstock.events.types import EventTypes
from penstock.events.upcasting import Upcaster
from penstock.log.open import open_log
from penstock.log.port import Log


class Folding(NamedTuple):
    """What a file says of a store: the class that folds, and how its events are read."""

    kind: type[Any]
    types: EventTypes
    module: str


def stores_in(log: Log) -> list[str]:
    """The event stores of a log; topics of snapshots are none."""
    return [name for name in log.topics() if log.topic(name).spec.events and not name.endswith(SNAPSHOTS)]


def streams_of(store: str | None) -> LogStreams:
    """The store of this name, or the only one."""
    log = open_log()
    names = stores_in(log)
    if store is None and len(names) != 1:
        what = f"there are several event stores: {', '.join(names)}" if names else "there is no event store here"
        hint = f"say which: --store {names[0]}" if names else "a program makes one with EventStore.open(name)"
        raise (BadInput if names else NotFound)(what, hint=hint)
    name = store or names[0]
    log.topic(name)  # NotFound, and nothing is made
    return open_streams(log, name)


def there(streams: LogStreams, stream: str) -> None:
    """NotFound if there is no such stream."""
    if not streams.version(stream):
        raise NotFound(f"store {streams.topic.spec.name} has no stream {stream!r}", hint="penstock events streams lists them")


def folding(of: str) -> Folding:
    """The class that is meant: FILE.py:CLASS, or the only aggregate that the file defines."""
    path, _, name = of.partition(":") if ":" in Path(of).name else (of, "", "")
    bound = load_file(Path(path), "a class that folds events")
    kinds = {
        value.__name__: value for value in bound.values() if isinstance(value, type) and callable(getattr(value, "apply", None))
    }
    kinds.pop(Aggregate.__name__, None)
    if name and name not in kinds:
        raise NotFound(f"{path} defines no class {name!r} with a method apply(event)", f"it has {', '.join(kinds) or 'none'}")
    if not name and len(kinds) != 1:
        what = (
            f"{path} defines several classes that fold events: {', '.join(kinds)}"
            if kinds
            else f"{path} defines no class that folds events"
        )
        raise BadInput(what, hint=f"say which: --of {path}:{next(iter(kinds), 'Cart')}")
    kind = kinds[name or next(iter(kinds))]
    return Folding(kind, EventTypes(_events_in(bound), upcasters=_upcasters_in(bound)), Path(path).stem)


def store_of(streams: LogStreams, found: Folding) -> EventStore:
    return EventStore(streams, found.types)


def _events_in(bound: dict[str, object]) -> list[type[Any]]:
    """The frozen dataclasses that a file binds, those that fold left out."""
    kinds = {id(value): value for value in bound.values() if isinstance(value, type) and dataclasses.is_dataclass(value)}
    frozen = [kind for kind in kinds.values() if getattr(kind, "__dataclass_params__").frozen]  # noqa: B009
    return [kind for kind in frozen if not callable(getattr(kind, "apply", None)) and kind is not Upcaster]


def _upcasters_in(bound: dict[str, object]) -> list[Upcaster]:
    """Those that are bound alone, or in a list."""
    found = [one for value in bound.values() for one in (value if isinstance(value, list | tuple) else [value])]
    return list({id(one): one for one in found if isinstance(one, Upcaster)}.values())
