"""What is told of event stores by folding: the state at a moment, the history with what each event changed, and exports."""

from pathlib import Path

import click
import orjson
import pyarrow as pa

from penstock.cli.events.show import row_of
from penstock.cli.events.stores import Folding, folding, store_of, streams_of, there
from penstock.cli.output import kind_of, print_table
from penstock.core.arrow import schema_of
from penstock.core.schema import TIMESTAMP
from penstock.events.event import Recorded
from penstock.events.exporting import Code, as_test
from penstock.events.history import Change, parts, plain

STATE = schema_of([("field", pa.string()), ("value", pa.string())])
HISTORY = schema_of(
    [("version", pa.int64()), ("at", TIMESTAMP), ("who", pa.string()), ("event", pa.string()), ("changes", pa.string())]
)
ALL_OF_HISTORY = schema_of(
    [*HISTORY, ("correlation", pa.string()), ("causation", pa.string()), ("id", pa.string()), ("data", pa.string())]
)


def print_state(stream: str, of: str, at: str | None, version: int | None, store: str | None, output: str | None) -> None:
    streams, found = streams_of(store), folding(of)
    there(streams, stream)
    state = store_of(streams, found).state(found.kind, stream, at=at, version=version)
    if kind_of(output) == "jsonl":
        click.echo(orjson.dumps(plain(state), default=str, option=orjson.OPT_NON_STR_KEYS).decode())
        return
    rows = [{"field": path, "value": _shown(value)} for path, value in parts(state).items()]
    print_table(pa.Table.from_pylist(rows, STATE), output, keys=["field"])


def print_history(stream: str, of: str | None, store: str | None, output: str | None) -> None:
    streams = streams_of(store)
    there(streams, stream)
    found = folding(of) if of else None
    steps = store_of(streams, found).history(found.kind, stream) if found else []
    changes = {step.recorded.version: "; ".join(map(_change, step.changes)) for step in steps}
    stored = [row_of(event) for event in streams.read(stream)]
    rows = [row | {"changes": changes.get(event.version)} for row, event in zip(stored, streams.read(stream), strict=True)]
    print_table(pa.Table.from_pylist(rows, HISTORY if kind_of(output) == "table" else ALL_OF_HISTORY), output, keys=["version"])


def export_stream(stream: str, of: str, test: bool, file: Path | None, store: str | None) -> None:
    streams, found = streams_of(store), folding(of)
    there(streams, stream)
    events = store_of(streams, found).read(stream)
    text = as_test(found.kind, stream, events, found.module) if test else _listed(events, found)
    if file is None:
        click.echo(text, nl=False)
    else:
        file.write_text(text)
        click.echo(f"{len(events)} events of {stream} are in {file}", err=True)


def _listed(events: list[Recorded[object]], found: Folding) -> str:
    code = Code()
    lines = [f"    {code.of(one.event)},\n" for one in events]
    names = ", ".join(sorted(kind.__name__ for kind in code.classes))
    imports = "".join(f"{line}\n" for line in sorted(code.imports))
    return f"{imports}from {found.module} import {names}\n\nEVENTS = [\n{''.join(lines)}]\n"


def _change(change: Change) -> str:
    return f"{change.path}: {_shown(change.before)} → {_shown(change.after)}"


def _shown(value: object) -> str:
    return value if isinstance(value, str) else repr(value)
