"""What each event of a stream changed: the folded state before and behind it, compared."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from penstock.events.aggregate import Aggregate
from penstock.events.event import Recorded

E = TypeVar("E")


class Absent:
    """Stands where there is no value."""

    def __repr__(self) -> str:
        return "∅"


ABSENT = Absent()


class Change(NamedTuple):
    """One part of the state, before and behind an event; ABSENT where it was not there."""

    path: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.path}: {self.before!r} → {self.after!r}"


@dataclass(frozen=True)
class Step(Generic[E]):
    """An event that happened, and what it changed."""

    recorded: Recorded[E]
    changes: tuple[Change, ...]


def plain(state: Any) -> Any:
    """A state as values: what an aggregate dumps, the fields of a dataclass, the attributes of anything else."""
    if isinstance(state, Aggregate):
        return state.dump()
    if dataclasses.is_dataclass(state) and not isinstance(state, type):
        return dataclasses.asdict(state)
    return vars(state)


def parts(state: Any) -> dict[str, Any]:
    """The parts of a state by their paths, as in `items.A`."""
    return dict(_parts(plain(state), ""))


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Change, ...]:
    """What is different, in the order of the paths."""
    paths = sorted({*before, *after})
    found = (Change(path, before.get(path, ABSENT), after.get(path, ABSENT)) for path in paths)
    return tuple(change for change in found if change.before != change.after and not _filled(change))


def _filled(change: Change) -> bool:
    """A container that was empty, or is: its parts tell the rest."""
    there = [value for value in (change.before, change.after) if value is not ABSENT]
    return len(there) == 1 and there[0] in ({}, [], ())


def _parts(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, Mapping) and (value or not path):
        inner = value.items()
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes) and value:
        inner = {str(number): one for number, one in enumerate(value)}.items()
    else:
        yield path, tuple(sorted(value, key=repr)) if isinstance(value, set | frozenset) else copy(value)
        return
    for name, one in inner:
        yield from _parts(one, f"{path}.{name}" if path else str(name))
