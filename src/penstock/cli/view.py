"""`penstock view`: what flows serve."""

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.output import OUTPUTS, print_table, safe, with_raw
from penstock.core.columns import SINCE

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from penstock.views.view import View

_OUTPUT = with_raw(
    click.option("--output", type=click.Choice(OUTPUTS), help="How rows are printed; a table on a terminal, else jsonl.")
)
_POSITION = re.compile(r"(?P<topic>[^/]+)/(?P<partition>\d+)@(?P<offset>\d+)", re.ASCII)


@click.group()
def view() -> None:
    """Look at views: rows now, as of a time, as they were known; one row; changes as they come."""


@view.command("list")
@_OUTPUT
def list_(output: str | None) -> None:
    """All views, with the flow that writes them and how far they have come."""
    import pyarrow as pa

    from penstock.core.time import text
    from penstock.views.directory import list_views

    lines = []
    for name in list_views(_views()):
        with _opened(name) as found:
            meta, now = found.meta, found.progress
            lines.append(
                {"view": name, "flow": meta.flow, "key": ", ".join(meta.key) or "position", "rows": found.count()}
                | {"epoch": now.epoch, "watermark": text(now.frontier)}
            )
    if not lines:
        click.echo("no views yet: a view is made when its flow runs (penstock run flow.py)", err=True)
        return
    print_table(pa.Table.from_pylist(lines), output, keys=["view"])


@view.command()
@click.argument("name")
@click.option("--as-of", metavar="TIME", help="Rows as of this event time.")
@click.option("--known-at", metavar="EPOCH|TIME", help="Rows as they were known then.")
@click.option("--open", "open_", is_flag=True, help="What is not complete yet, in place of what is.")
@click.option("--limit", type=click.IntRange(min=0), help="At most so many rows.")
@_OUTPUT
def show(name: str, as_of: str | None, known_at: str | None, open_: bool, limit: int | None, output: str | None) -> None:
    """The rows of a view."""
    if open_:
        if as_of or known_at:
            raise click.UsageError("--open shows what is open now; it cannot be combined with --as-of or --known-at")
        rows, key = _open_rows(name)
        rows = rows.slice(0, limit)
        if not rows.num_rows:
            click.echo(f"view {name}: nothing is open", err=True)
        print_table(rows, output, f"{name}: not complete yet", keys=key)
        return
    with _opened(name) as found:
        rows = found.rows(as_of, _epoch_or_time(known_at), limit=limit)
        if not rows.num_rows:
            reason = found.why_empty() or "no row was there at that time"
            click.echo(safe(f"view {name} is empty: {reason}" if limit != 0 else f"view {name}: no rows asked for"), err=True)
        print_table(rows, output, keys=found.meta.key)


@view.command()
@click.argument("name")
@click.argument("key", nargs=-1, required=True)
@click.option("--history", is_flag=True, help="Every version of the row, with the epochs between which it was current.")
@_OUTPUT
def get(name: str, key: tuple[str, ...], history: bool, output: str | None) -> int | None:
    """One row by its key: a value per key column, in the order `view list` shows."""
    import pyarrow as pa

    with _opened(name) as found:
        meta = found.meta
        values = [_value(word, meta.schema.type(column)) for word, column in zip(key, meta.key, strict=False)]
        asked = [*values, *key[len(values) :]] if meta.key else [_position(key[0]), *key[1:]]
        row = found.get(*asked)
        rows = found.history(*asked) if history else pa.Table.from_pylist([row] if row else [], schema=meta.schema.arrow)
    if not rows.num_rows:
        click.echo(safe(f"view {name} has no row {', '.join(key)}"), err=True)
        return 3
    print_table(rows, output, keys=[*meta.key, SINCE])
    return None


@view.command()
@click.argument("name")
@click.option("--new", is_flag=True, help="Only what changes from now on.")
@_OUTPUT
def follow(name: str, new: bool, output: str | None) -> None:
    """The rows of a view, then every change, until interrupted. Deleted rows are told on standard error."""
    from penstock.cli.table import Writer

    writer = Writer(live=True)
    with _opened(name) as found:
        for changes in found.follow(since=found.epoch if new else -1):
            if changes.rows.num_rows:
                print_table(changes.rows, output, f"{name}, epoch {changes.epoch}", keys=found.meta.key, writer=writer)
            if changes.deleted.num_rows:
                click.echo(f"epoch {changes.epoch}: {changes.deleted.num_rows} rows deleted", err=True)
            sys.stdout.flush()


@view.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
def drop(name: str, yes: bool) -> None:
    """Remove a view with its history. Its flow writes it again from what it still has, or says that it cannot."""
    from penstock.views.directory import drop_view, view_path

    view_path(_views(), name)
    if not yes:
        click.confirm(f"remove view {name} with its history?", abort=True, err=True)
    drop_view(_views(), name)
    click.echo(f"view {name} is gone", err=True)


def _views() -> "Path":
    from penstock.storage.home import find_home

    return find_home() / "views"


def _opened(name: str) -> "View":
    from penstock.views.view import View

    return View(_views(), name)


def _open_rows(name: str) -> "tuple[pa.Table, Sequence[str]]":
    """The rows that are not complete, and the key of the view."""
    from penstock.engine.diagnose.inspect import open_rows
    from penstock.storage.home import find_home

    with _opened(name) as found:
        schema, key = found.meta.schema.arrow, found.meta.key
    rows = open_rows(find_home(), name)
    return (schema.empty_table() if rows is None else rows.select(schema.names)), key


def _epoch_or_time(value: str | None) -> str | int | None:
    return int(value) if value and value.isascii() and value.isdigit() else value


def _value(word: str, t: Any) -> Any:
    """A word of the command line as what the key column takes; `null` is no value, text columns take it as it is."""
    import pyarrow as pa

    if pa.types.is_string(t):
        return word
    return {"null": None, "true": True, "false": False}.get(word, word)


def _position(word: str) -> Any:
    from penstock.core.position import Position

    found = _POSITION.fullmatch(word)
    return Position(found["topic"], int(found["partition"]), int(found["offset"])) if found else word
