"""Kinds of engines: how each looks at a database, prepares it, follows it and leaves it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from penstock.capture.definition import CaptureDefinition
from penstock.capture.port import Engine, Table
from penstock.errors import BadInput
from penstock.storage.port import Storage

MAX_KEPT = "max_kept_bytes"  # an option for `open`: of its log that a database may keep before the engine warns


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at before a database is followed."""

    level: Literal["ok", "warning", "error"]
    what: str  # one line, as in: wal_level is 'replica'
    mend: Sequence[str] = ()  # the statements, or commands, that mend it


class EngineKind(Protocol):
    """Prepares databases for one kind of engine."""

    def check(self, definition: CaptureDefinition) -> Sequence[Finding]:
        """Looks whether these tables (none: the database as such) can be followed. Changes nothing."""
        ...

    def tables(self, definition: CaptureDefinition, patterns: Sequence[str]) -> Sequence[Table]:
        """The tables that patterns such as `public.orders`, `orders` and `public.*` mean. NotFound names one that means none."""
        ...

    def statements(self, definition: CaptureDefinition) -> Sequence[str]:
        """What `set_up` will execute, to be shown first; without secrets."""
        ...

    def set_up(self, definition: CaptureDefinition) -> CaptureDefinition:
        """Prepares the database; the definition with what the engine needs to find it again in its options. May be called again
        after a kill, and when tables were added."""
        ...

    def open(self, definition: CaptureDefinition, storage: Storage) -> Engine:
        """The engine, which has not connected yet. storage: a directory of its own."""
        ...

    def tear_down(self, definition: CaptureDefinition) -> Sequence[str]:
        """Removes from the database what `set_up` made, whatever of it is still there; says what was removed, a line each."""
        ...


@dataclass(frozen=True)
class Kept:
    """What a database keeps for a capture, as it says itself."""

    lag_bytes: int | None = None  # of its log that were not confirmed yet
    lag_seconds: float | None = None
    kept_bytes: int | None = None  # of its log that it cannot remove
    limit_bytes: int | None = None  # of them at which it gives up; None: it never does
    reader: str | None = None  # who reads now
    trouble: str | None = None  # why it cannot be followed any more


@runtime_checkable
class Inspecting(Protocol):
    """A kind that leaves something in the database, such as a slot, and can tell about it."""

    def look(self, definition: CaptureDefinition) -> Kept:
        """Asks the database. Disconnected or NotFollowable if it does not answer."""
        ...

    def leftovers(self, definition: CaptureDefinition) -> Sequence[str]:
        """The statements that remove by hand what `tear_down` would. Asks nobody."""
        ...


def _postgres() -> EngineKind:
    from penstock.capture.postgres.kind import PostgresKind

    return PostgresKind()


def _triggers() -> EngineKind:
    from penstock.capture.triggers.kind import TriggersKind

    return TriggersKind()


def _poll() -> EngineKind:
    from penstock.capture.polling.kind import PollKind

    return PollKind()


def _debezium() -> EngineKind:
    from penstock.capture.debezium.kind import DebeziumKind

    return DebeziumKind()


KINDS: Mapping[str, Callable[[], EngineKind]] = {"postgres": _postgres, "triggers": _triggers, "poll": _poll, "debezium": _debezium}


def kind_of(engine: str) -> EngineKind:
    if engine not in KINDS:
        raise BadInput(f"there is no engine {engine!a} for captures", hint=f"one of {', '.join(KINDS)}")
    return KINDS[engine]()
