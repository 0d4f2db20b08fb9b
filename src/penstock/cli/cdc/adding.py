"""penstock cdc add: shows what will be executed, prepares the database, remembers the capture; leaves nothing behind if that fails.

The capture is remembered before the database is touched: should this process be killed in between, the next `cdc add` goes on, and
`cdc remove` finds what is there."""

import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from penstock.capture.debezium.allowed import allowed
from penstock.capture.definition import CaptureDefinition, Secret
from penstock.capture.kind import EngineKind, Inspecting, kind_of
from penstock.capture.naming import USUAL
from penstock.capture.port import Table
from penstock.capture.registry import Captures
from penstock.capture.runner import runs, taken
from penstock.capture.writing.journal import read_journal
from penstock.cli.cdc.findings import refused, sql_text
from penstock.cli.cdc.url import check_url, engine_for
from penstock.cli.output import safe
from penstock.core.time import duration
from penstock.errors import AlreadyThere, BadInput, NotFound, PenstockError
from penstock.log.open import open_log


@dataclass(frozen=True)
class Wishes:
    """What `cdc add` was told."""

    name: str
    url: str | None
    tables: Sequence[str]
    without: Sequence[str] = ()
    engine: str | None = None
    poll: str | None = None
    secret: Secret = field(default_factory=Secret)
    topics: str | None = None
    flat: bool = False
    partitions: int | None = None
    settings: Sequence[str] = ()
    dry_run: bool = False


def secret_of(variable: str | None, file: str | None) -> Secret:
    if variable and file:
        raise BadInput("a password is in a variable or in a file, not in both", hint="leave --password-env or --password-file out")
    return Secret(variable, str(Path(file).absolute()) if file else None)


def split(patterns: Sequence[str]) -> list[str]:
    """`a,b` and several options are the same."""
    return [part.strip() for each in patterns for part in each.split(",") if part.strip()]


def settings_of(engine: str, given: Sequence[str]) -> dict[str, str]:
    """What the connector of Debezium is told; BadInput if it may not be."""
    if engine != "debezium":
        raise BadInput("--option is for Debezium's connectors", hint=f"leave it out: the engine is {engine}")
    pairs = [each.partition("=") for each in given]
    if not all(name and equals for name, equals, _ in pairs):
        raise BadInput("--option has a name and a value", hint="--option max.batch.size=4096")
    return allowed({name.strip(): value.strip() for name, _, value in pairs})


def add(wishes: Wishes) -> None:
    captures = Captures()
    there = captures.get(wishes.name) if wishes.name in captures.names() else None
    if wishes.url is None and there is None:
        captures.get(wishes.name)  # NotFound, which names those that are there
    wanted = _more(there, wishes) if there and (wishes.url is None or there.prepared) else _new(there, wishes)
    kind = kind_of(wanted.engine)
    wanted = replace(wanted, tables=_tables(kind, wanted, wishes))
    open_topics = wanted.names.topics(wanted.tables, _taken_names(wanted))
    if error := refused(kind.check(wanted)):
        raise error
    statements = kind.statements(wanted)
    for statement in statements:
        click.echo(sql_text(statement))
    if wishes.dry_run:
        click.echo("nothing was changed: --dry-run", err=True)
        return
    if there and not statements and there.prepared and set(there.tables) == set(wanted.tables):
        click.echo(f"capture {wanted.name} follows {_count(wanted.tables)} already", err=True)
        return
    _remember(captures, kind, there, wanted)
    _said(captures, there, wanted, sorted(open_topics.values()))


def _new(there: CaptureDefinition | None, wishes: Wishes) -> CaptureDefinition:
    assert wishes.url is not None
    url = check_url(wishes.url)
    if there and there.url != url:
        raise AlreadyThere(
            f"capture {wishes.name!a} was begun for another database and not finished", hint=f"penstock cdc remove {wishes.name}"
        )
    options: dict[str, Any] = {}
    if wishes.poll is not None:
        duration(wishes.poll, "--poll")
        options["every"] = wishes.poll
    engine = engine_for(url, wishes.engine, wishes.poll)
    if wishes.settings:
        options["properties"] = settings_of(engine, wishes.settings)
    return CaptureDefinition(
        wishes.name,
        engine,
        url,
        (),
        wishes.secret,
        wishes.topics or USUAL,
        wishes.flat,
        wishes.partitions or 1,
        {**(there.options if there else {}), **options},
        there.id if there else uuid.uuid4().hex,
        prepared=False,
    )


def _more(there: CaptureDefinition, wishes: Wishes) -> CaptureDefinition:
    """More tables for a capture that is there; nothing else of it can be changed."""
    if wishes.url is not None:
        raise AlreadyThere(
            f"there is a capture {wishes.name!a} already",
            hint=f"penstock cdc add {wishes.name} --tables … adds tables to it; penstock cdc status shows it",
        )
    given: dict[str, object] = {"--engine": wishes.engine, "--poll": wishes.poll, "--topics": wishes.topics}
    given |= {"--partitions": wishes.partitions, "--option": wishes.settings or None}
    changed = [option for option, value in {**given, "--flat": wishes.flat or None}.items() if value is not None]
    if changed:
        raise BadInput(
            f"{', '.join(changed)} of a capture cannot be changed once it is there", hint="add tables with --tables alone"
        )
    return there if wishes.secret == Secret() else replace(there, secret=wishes.secret)


def _tables(kind: EngineKind, wanted: CaptureDefinition, wishes: Wishes) -> tuple[Table, ...]:
    patterns, without = split(wishes.tables), split(wishes.without)
    if not patterns:
        raise BadInput("which tables?", hint="--tables public.orders,public.users or --tables 'public.*'")
    left_out = set(kind.tables(wanted, without)) if without else set[Table]()
    found = [table for table in kind.tables(wanted, patterns) if table not in left_out]
    if not found:
        raise NotFound("all tables that --tables means are left out by --except")
    return (*wanted.tables, *(table for table in found if table not in wanted.tables))


def _taken_names(wanted: CaptureDefinition) -> list[str]:
    """Topics that others write."""
    log = open_log()
    return [name for name in log.topics() if log.topic(name).spec.capture != wanted.name]


def _remember(captures: Captures, kind: EngineKind, there: CaptureDefinition | None, wanted: CaptureDefinition) -> None:
    begun = replace(wanted, prepared=False)
    if there:
        captures.change(begun)
    else:
        captures.add(begun)
    try:
        made = kind.set_up(begun)
    except BaseException:
        if there and there.prepared:
            captures.change(there)
        else:
            _take_back(captures, kind, begun)
        raise
    captures.change(replace(made, prepared=True))


def _take_back(captures: Captures, kind: EngineKind, begun: CaptureDefinition) -> None:
    try:
        kind.tear_down(begun)
    except PenstockError as error:
        left = kind.leftovers(begun) if isinstance(kind, Inspecting) else ()
        click.echo(
            safe(f"what was made so far could not be removed: {error.what}; penstock cdc remove {begun.name} does it"), err=True
        )
        for statement in left:
            click.echo(sql_text(statement, "    "), err=True)
        return
    with suppress(NotFound), taken(captures.storage(begun.name), begun.name):
        captures.remove(begun.name)


def _said(captures: Captures, there: CaptureDefinition | None, wanted: CaptureDefinition, topics: Sequence[str]) -> None:
    known = f"{topics[0]}" if len(topics) == 1 else f"{topics[0]} … {topics[-1]}"
    click.echo(
        safe(f"capture {wanted.name} follows {_count(wanted.tables)} into {known}; penstock cdc run {wanted.name}"), err=True
    )
    if there and there.prepared and runs(captures.storage(wanted.name)):
        how = "takes them up by itself" if wanted.engine == "postgres" else "takes them up when it is started again"
        click.echo(f"it is running, and {how}", err=True)
    if there is None and _was_written(wanted):
        what = (
            f"topics of an earlier capture {wanted.name} are there: penstock cdc run {wanted.name} --resnapshot writes what differs"
        )
        click.echo(what, err=True)


def _was_written(wanted: CaptureDefinition) -> bool:
    log = open_log()
    name = wanted.names.transactions
    return name in log.topics() and read_journal(log.topic(name)).state.position is not None


def _count(tables: Sequence[Table]) -> str:
    return f"{len(tables)} table{'' if len(tables) == 1 else 's'}"
