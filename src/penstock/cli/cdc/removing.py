"""penstock cdc remove: drops what a capture has in its database, then forgets it; a slot is never left behind silently."""

from collections.abc import Sequence

import click

from penstock.capture.definition import CaptureDefinition
from penstock.capture.kind import EngineKind, Inspecting, kind_of
from penstock.capture.registry import Captures
from penstock.capture.runner import taken
from penstock.cli.output import safe
from penstock.errors import CaptureError, Disconnected, NotFollowable, NotFound
from penstock.log.open import open_log


def remove(name: str, keep_slot: bool, topics: bool, force: bool) -> None:
    """Everything that was asked has been asked."""
    captures = Captures()
    definition = captures.get(name)
    kind = kind_of(definition.engine)
    with taken(captures.storage(name), name):
        for line in _database(kind, definition, keep_slot, force):
            click.echo(safe(line), err=True)
        gone = _delete_topics(definition) if topics else []
        captures.remove(name)
    told = f"; {len(gone)} topics are deleted" if topics else "; its topics stay"
    click.echo(f"capture {name} is forgotten{told}", err=True)


def question(name: str, keep_slot: bool, topics: bool) -> str:
    definition = Captures().get(name)
    database = "leave what it has in the database" if keep_slot else "drop what it has in the database"
    also = " and delete its topics with all records" if topics else ""
    return f"forget capture {name} of {definition.url} ({len(definition.tables)} tables), {database}{also}?"


def _database(kind: EngineKind, definition: CaptureDefinition, keep_slot: bool, force: bool) -> Sequence[str]:
    """What became of what is in the database, a line each."""
    by_hand = _by_hand(kind, definition)
    if keep_slot:
        return ["what it has in the database stays, and may grow there until somebody removes it", *by_hand]
    try:
        return kind.tear_down(definition)
    except (Disconnected, NotFollowable, NotFound) as error:
        if force:
            return [f"! {error.what}: what it has in the database is left behind, and may grow there", *by_hand]
        raise CaptureError(
            f"capture {definition.name!a} is not removed, as its database cannot be asked to drop what belongs to it",
            error.what,
            *error.detail,
            "left behind, it may fill the disk of the database",
            *by_hand,
            hint="try again when it is there; --force forgets the capture all the same",
        ) from error


def _by_hand(kind: EngineKind, definition: CaptureDefinition) -> list[str]:
    """What removes it without us, where the engine knows."""
    statements = kind.leftovers(definition) if isinstance(kind, Inspecting) else ()
    return ["by hand, in the database:", *(f"    {statement}" for statement in statements)] if statements else []


def _delete_topics(definition: CaptureDefinition) -> list[str]:
    """Those that this capture writes; the journal last, so that a kill in between leaves nothing that goes on from nowhere."""
    log = open_log()
    mine = [name for name in log.topics() if log.topic(name).spec.capture == definition.name]
    for name in sorted(mine, key=lambda name: name == definition.names.transactions):
        log.delete(name)
    return mine
