"""`penstock state`: what flows keep between epochs."""

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.output import OUTPUTS, kind_of, print_table, safe, with_raw

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.engine.run.epoch.decision import Decisions
    from penstock.engine.state.report import Holding

_OUTPUT = with_raw(click.option("--output", type=click.Choice(OUTPUTS), help="Default: a table on a terminal, else JSON lines."))


@click.group()
def state() -> None:
    """Look at what flows keep, and change how it is cut.

    A step with a memory (a window, a join, a table) keeps tables of rows. They lie in buckets by the hash of the key, in slots of
    time, in runs: Arrow files, of which every epoch writes small new ones, and eight of one level are merged into one of the next.

    \b
    penstock state show                            what every flow keeps
    penstock state show shop settled left          the rows of one table
    penstock state path shop settled               the files, for DuckDB and Polars
    penstock state rebucket shop 8                 more buckets, for more tasks
    """


@state.command()
@click.argument("flow", required=False)
@click.argument("step", required=False)
@click.argument("table", required=False)
@click.option("--step", "chosen", metavar="NAME", help="Only this step.")
@click.option("--key", "keys", multiple=True, metavar="COLUMN=VALUE", help="Only rows of this key; once for each of its columns.")
@click.option("--limit", type=click.IntRange(min=0), default=100, show_default=True, help="At most so many rows, the newest.")
@_OUTPUT
def show(
    flow: str | None, step: str | None, table: str | None, chosen: str | None, keys: tuple[str, ...], limit: int, output: str | None
) -> None:
    """How much is kept, by step and table; or, with FLOW STEP TABLE, the rows themselves, newest first.

    Of each table: rows, files and their bytes, runs by level, buckets that have any of it, and the begin of the oldest slot.
    With --key only the bucket of that key is opened; give all columns of the step's key, else every run is looked through.
    Columns whose names begin with __ are the step's own: parts of aggregates, and the like.

    \b
    penstock state show shop --step settled
    penstock state show shop settled left --limit 10
    penstock state show shop settled left --key order_id=o17
    """
    if table is None:
        if keys:
            raise click.UsageError("--key looks at the rows of a table: penstock state show FLOW STEP TABLE --key COLUMN=VALUE")
        _show_holdings(flow, chosen or step, output)
        return
    assert flow is not None
    assert step is not None
    _show_rows(flow, step, table, dict(map(_pair, keys)), limit, output)


@state.command()
@click.argument("flow")
@click.argument("step")
@click.argument("table", required=False)
@click.option(
    "--output", type=click.Choice(["paths", *OUTPUTS]), default="paths", show_default=True, help="Paths, or a line per run."
)
def path(flow: str, step: str, table: str | None, output: str) -> None:
    """The Arrow files that hold a step's state now, each checked against the checksum in its name.

    A file may also hold runs that are over. `--output jsonl` says exactly where each run lies that counts: rows `first` to `first +
    rows` of `file`. docs/state.md shows how to read them with DuckDB and Polars.

    \b
    penstock state path shop settled
    penstock state path shop settled left --output jsonl
    """
    from penstock.engine.state.report import runs

    home = _home()
    found = runs(_decisions(home, flow), step, table)
    if not found:
        click.echo(f"step {step} of flow {flow} keeps nothing now", err=True)
    lines = [run._asdict() | {"file": str(home / "flows" / flow / run.file), "slot": _slot(run.slot)} for run in found]
    if output == "paths":
        for file in dict.fromkeys(line["file"] for line in lines):
            click.echo(file)
        return
    _print(lines, output, ["file", "table", "first", "rows"])


@state.command()
@click.argument("flow")
@click.argument("buckets", type=click.IntRange(1, 1024))
def rebucket(flow: str, buckets: int) -> None:
    """Give FLOW another number of state buckets: as many tasks can work on one keyed step at once.

    The flow must not be running. Its state is cut anew and an epoch without rows is decided; stopped before that, nothing has
    changed. The next start goes on with the new number. What was there before stays until its epochs are swept.

    \b
    penstock state rebucket shop 8
    """
    from penstock.engine.state.rebucket import rebucket_flow

    rebucket_flow(_decisions(_home(), flow), buckets, lambda text: click.echo(safe(text), err=True))


def _show_holdings(flow: str | None, step: str | None, output: str | None) -> None:
    from penstock.engine.diagnose.inspect import flows
    from penstock.engine.state.report import decided, holdings

    home = _home()
    names = [flow] if flow else [name for name in flows(home) if _decisions(home, name).last()]
    if not names:
        click.echo("no flow has decided anything here yet (penstock run FLOW.py)", err=True)
        return
    people = kind_of(output) == "table"
    for name in names:
        decisions = _decisions(home, name)
        found, last = holdings(decisions, step), decided(decisions)
        if found:
            _print([_for_people(held) if people else vars(held) for held in found], output, ["step", "table"])
        click.echo(safe(f"{_total(name, found)} · {last.buckets} buckets, epoch {last.epoch}"), err=True)


def _for_people(held: "Holding") -> dict[str, Any]:
    what = (held.what or "") + (f" by {', '.join(held.key)}" if held.key else "")
    runs = " + ".join(map(str, held.runs))
    named = {"step": held.step, "what": what, "table": held.table, "rows": held.rows}
    return named | {
        "files": held.files,
        "size": size_text(held.bytes),
        "runs": runs,
        "buckets": held.buckets,
        "oldest": held.oldest,
    }


def _total(flow: str, held: "list[Holding]") -> str:
    rows, files, size = (sum(getattr(h, name) for h in held) for name in ("rows", "files", "bytes"))
    return f"{flow}: {rows:,} rows in {files:,} files, {size_text(size)}"


def _show_rows(flow: str, step: str, table: str, key: dict[str, str], limit: int, output: str | None) -> None:
    from penstock.engine.state.report import rows_kept

    decisions = _decisions(_home(), flow)
    kept = rows_kept(decisions, step, table, key, limit)
    print_table(kept.rows, output, keys=[*chain(*decisions.owner().get("holders", {}).get(step, {}).get("keys", ()))])
    if not kept.together:
        click.echo("runs are shown one by one: this step has a function of the flow's own, which brings them together", err=True)
    if kept.more:
        click.echo(f"there are more: these are the newest {limit:,} (--limit, --key)", err=True)
    elif not kept.rows.num_rows:
        click.echo("no such row is kept", err=True)


def _pair(given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not equals or not name:
        raise click.UsageError(f"--key {given!r} is no column and value: write it like --key user_id=1")
    return name, value


def _print(lines: list[dict[str, Any]], output: str | None, keys: Sequence[str]) -> None:
    import pyarrow as pa

    print_table(pa.Table.from_pylist(lines), output, keys=keys)


def size_text(size: int) -> str:
    value, unit = float(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"


def _slot(slot: int) -> str | None:
    from penstock.core.time import text

    return text(slot) if slot else None


def _home() -> "Path":
    from penstock.storage.home import find_home

    return find_home()


def _decisions(home: "Path", flow: str) -> "Decisions":
    from penstock.engine.diagnose.inspect import decisions_of

    return decisions_of(home, flow)
