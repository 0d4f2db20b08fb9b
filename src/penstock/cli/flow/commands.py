"""`penstock flow`: which flows there are, one of them in full, starting over, going on behind an end, doing away with one."""

from typing import TYPE_CHECKING, Any

import click

from penstock.cli.log import with_log
from penstock.cli.output import OUTPUTS, kind_of, print_table, safe

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.engine.flows.belongings import Belonging
    from penstock.engine.flows.removing import Going, What
    from penstock.log.port import Log

_OUTPUT = click.option("--output", type=click.Choice(OUTPUTS), help="How lines are printed; a table on a terminal, else jsonl.")
_YES = click.option("--yes", is_flag=True, help="Do it; without, what would happen is shown and nothing changes.")
_FORCE = click.option("--force", is_flag=True, help="Even if other flows or groups read a topic that goes.")


@click.group()
def flow() -> None:
    """Look at flows, start them over, let them go on after --drain, remove them. None of it needs Spark.

    \b
    penstock flow list
    penstock flow describe shop
    penstock flow reset shop            what would go; --yes does it
    penstock flow reopen shop           go on after a drain
    """


@flow.command("list")
@_OUTPUT
def list_(output: str | None) -> None:
    """All flows of the home: whether each runs, how far it has come, what it writes.

    `state` is running (by whom stands in `by`), stopped, ended (by --drain: see `reopen`), never decided, half removed (a reset or
    drop was cut short; the same command again finishes it), or damaged (see `penstock doctor`).

    \b
    penstock flow list
    penstock flow list --output jsonl
    """
    from penstock.engine.flows.listing import listed

    home = _home()
    found = listed(home)
    if not found:
        click.echo(f"no flow has run in {home} yet (penstock run FLOW.py)", err=True)
        return
    _print([_for_people(one.line) if kind_of(output) == "table" else one.line for one in found], output)


@flow.command()
@click.argument("name")
@_OUTPUT
def describe(name: str, output: str | None) -> None:
    """The flow NAME in full: its steps and what they keep, its inputs and how far they are read, its outputs, its books.

    As JSON lines, each line says in `about` what it is: flow, step, input, output or book.

    \b
    penstock flow describe shop
    penstock flow describe shop --output jsonl | jq 'select(.about == "input")'
    """
    from penstock.engine.flows.listing import described

    found = described(_home(), _log(), name)
    parts = {"flow": [dict(found.facts)], "step": found.steps, "input": found.inputs, "output": found.outputs, "book": found.books}
    for about, lines in parts.items():
        if lines and kind_of(output) == "table":
            _print([_for_people(line) for line in lines], output, about if about == "flow" else f"{about}s")
        elif lines:
            _print([{"about": about} | line for line in lines], output)


@flow.command()
@click.argument("name")
@click.option("--keep-topics", is_flag=True, help="Leave the topics it writes as they are; it must write others from then on.")
@_FORCE
@_YES
@_OUTPUT
def reset(name: str, keep_topics: bool, force: bool, yes: bool, output: str | None) -> None:
    """Start the flow NAME over. Shows which state, views, search indexes, topics and groups would go, with rows and sizes; --yes
    removes them.

    The next run begins at the beginning of its inputs, with a new incarnation, and makes its outputs anew. Refused while the flow
    runs, and where others read its topics, which then are others: --force does it, and those flows have to be reset, too.
    Stores outside the home keep their rows: it is said how each of them is emptied, and until then the next run is refused there.
    With --keep-topics the topics stay, and belong to the life that is over: the flow must write others before it can start again.
    Killed in between, the same command again finishes it, and a run says so.

    \b
    penstock flow reset shop
    penstock flow reset shop --yes
    """
    _remove(name, "reset", not keep_topics, force, yes, output)


@flow.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Even if it writes topics, in which the end stays for those who judge by time.")
@_YES
@_OUTPUT
def reopen(name: str, force: bool, yes: bool, output: str | None) -> None:
    """Let the flow NAME go on after --drain. Shows from when on its rows would be on time; --yes decides it.

    A drain gives every open window as final. That stays, and so the flow goes on at a time behind all of them: rows before it are
    late as before, rows from it on are judged as if a mark of that time stood where the end was. Rows that were read in between
    stay late. In the topics that the flow writes the end stays for ever: refused where there are any, unless --force.

    \b
    penstock flow reopen shop
    penstock flow reopen shop --yes
    """
    from penstock.core.time import text
    from penstock.engine.flows.reopening import carry_out, plan

    home, log = _home(), _log()
    found = plan(home, log, name)
    epoch = carry_out(home, log, name, force).epoch if yes else None
    line = {"flow": name, "on_time_from": text(found.time), "because_of": found.step, "epoch": epoch}
    line |= {
        "inputs_still_ended": ", ".join(found.ended) or None,
        "topics_still_ended": ", ".join(t.name for t in found.promised) or None,
    }
    _print([line], output)
    for thing in found.promised:
        told = f"{', '.join(thing.readers)} may have taken it" if thing.readers else "nobody has read it yet"
        click.echo(safe(f"topic {thing.name} says that nothing more comes, and that stays: {told}"), err=True)
    rule = f"rows from {text(found.time)} on are on time, rows before it stay late"
    click.echo(safe(f"flow {name} goes on: {rule}" if yes else f"nothing changed; with --yes {rule}"), err=True)


@flow.command()
@click.argument("name")
@click.option("--topics", is_flag=True, help="The topics it writes for others, too.")
@_FORCE
@_YES
@_OUTPUT
def drop(name: str, topics: bool, force: bool, yes: bool, output: str | None) -> None:
    """Remove the flow NAME: its state, its views, its search indexes, its own topics for late and dead rows. Shows what would go;
    --yes does it.

    The topics that it writes for others stay, unless --topics is given, and so do the rows in stores outside the home. Refused
    while the flow runs. Killed in between, the same command again finishes it.

    \b
    penstock flow drop shop
    penstock flow drop shop --topics --yes
    """
    _remove(name, "drop", topics, force, yes, output)


def _remove(name: str, what: "What", topics: bool, force: bool, yes: bool, output: str | None) -> None:
    import os

    from penstock.engine.flows.prepared import finished
    from penstock.engine.flows.removing import carry_out, plan
    from penstock.engine.run.runtime import armed

    home, log = _home(), _log()
    going = plan(home, log, name, what, topics)
    if yes:
        for finding in finished(home, name):
            click.echo(safe(finding.what + (f"\n    {finding.hint}" if finding.hint else "")), err=True)
        carry_out(home, log, going, force, armed(os.environ.get("PENSTOCK_FAIL", ""), name))
    lines = [_thing(thing, goes=True) for thing in going.goes] + [_thing(thing, goes=False) for thing in going.stays]
    _print([_for_people(line) if kind_of(output) == "table" else line for line in lines], output)
    for line in _notes(home, log, going, yes):
        click.echo(safe(line), err=True)


def _notes(home: "Path", log: "Log", going: "Going", yes: bool) -> list[str]:
    flow, what = going.removal.flow, going.removal.what
    done = {"reset": "starts over at its next run", "drop": "is gone"}[what]
    if yes:
        told = [f"flow {flow} {done}"]
    else:
        begun = f"; a {going.begun} of it was begun and not finished" if going.begun else ""
        told = [f"nothing changed; --yes would {what} flow {flow}{begun}"]
    for topic, names in going.read.items():
        told.append(
            f"topic {topic} is read by {', '.join(names)}, which would have to start over: --force, and then reset them, too"
        )
    told += [_of_store(thing, what) for thing in going.stays if thing.kind == "store"]
    kept = [thing.name for thing in going.stays if thing.kind == "topic"]
    if kept and what == "reset":
        told.append(f"topics that stay belong to the life that is over; flow {flow} must write others: {', '.join(kept)}")
    if what == "reset" and not yes:
        from penstock.engine.flows.removing import cut_off

        told += [
            f"{place} begins at offset {first:,}: what was removed before it is not read again"
            for place, first in cut_off(home, log, flow)
        ]
    return told


def _of_store(store: "Belonging", what: "What") -> str:
    if what == "drop":
        return f"sink {store.name} keeps its rows; to be rid of them: {store.emptied}"
    return f"sink {store.name} keeps the rows of the life that is over, and refuses the next one until it is empty: {store.emptied}"


def _thing(thing: "Belonging", goes: bool) -> dict[str, Any]:
    line = {"goes": goes, "kind": thing.kind, "name": thing.name, "rows": thing.rows, "bytes": thing.bytes}
    return line | {"readers": ", ".join(thing.readers) or None}


def _for_people(line: dict[str, Any]) -> dict[str, Any]:
    """The same with sizes that can be read, and yes and no."""
    from penstock.cli.flow.state import size_text

    out = {("size" if name == "bytes" else name): value for name, value in line.items()}
    if isinstance(line.get("bytes"), int):
        out["size"] = size_text(line["bytes"])
    return {name: ("yes" if value else "no") if isinstance(value, bool) else value for name, value in out.items()}


def _print(lines: list[dict[str, Any]], output: str | None, title: str | None = None) -> None:
    import pyarrow as pa

    print_table(pa.Table.from_pylist(lines), output, title)


def _home() -> "Path":
    from penstock.storage.home import find_home

    return find_home()


def _log() -> "Log":
    from penstock.log.open import open_log

    return open_log()


with_log(flow)
