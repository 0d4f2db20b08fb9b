"""What is told of event stores without folding: streams, events, and whether all is sound."""

import click
import pyarrow as pa

from penstock.cli.events.stores import stores_in, streams_of, there
from penstock.cli.output import kind_of, print_table, safe
from penstock.core.arrow import schema_of
from penstock.core.schema import TIMESTAMP
from penstock.events.event import StoredEvent
from penstock.events.on_log.verifying import verify
from penstock.log.open import open_log

STREAMS = schema_of([
    ("stream", pa.string()),
    ("events", pa.int64()),
    ("version", pa.int64()),
    ("first", TIMESTAMP),
    ("last", TIMESTAMP),
    ("partition", pa.int64()),
])  # fmt: skip
EVENTS = schema_of([
    ("version", pa.int64()),
    ("at", TIMESTAMP),
    ("event", pa.string()),
    ("number", pa.int64()),
    ("data", pa.string()),
    ("who", pa.string()),
])  # fmt: skip
ALL_OF_EVENTS = schema_of([
    *EVENTS,
    *((name, pa.string()) for name in ("correlation", "causation", "id", "stream")),
    ("partition", pa.int64()),
    ("offset", pa.int64()),
])  # fmt: skip
UNHEALTHY = 4


def print_streams(store: str | None, output: str | None) -> None:
    rows = [info._asdict() for info in streams_of(store).streams()]
    if rows or output:
        print_table(pa.Table.from_pylist(rows, STREAMS), output, keys=["stream"])
    else:
        click.echo("no streams yet: nothing was appended", err=True)


def print_events(stream: str, start: int, stop: int | None, store: str | None, output: str | None) -> None:
    streams = streams_of(store)
    there(streams, stream)
    rows = [row_of(event) for event in streams.read(stream, start, stop)]
    print_table(
        pa.Table.from_pylist(rows, EVENTS if kind_of(output) == "table" else ALL_OF_EVENTS), output, keys=["version", "event"]
    )


def row_of(stored: StoredEvent) -> dict[str, object]:
    """An event as it is shown."""
    position = {"partition": stored.position.partition, "offset": stored.position.offset}
    fields = {name: value for name, value in stored._asdict().items() if name not in ("name", "about", "position")}
    return fields | {"event": stored.name} | stored.about._asdict() | position


def print_verified(store: str | None) -> int:
    """One sentence a store, and one for everything that is wrong; the exit code."""
    wrong = 0
    for name in [store] if store else stores_in(open_log()):
        found = verify(streams_of(name))
        wrong += len(found.wrong)
        click.echo(f"{name}: {_counted(found.streams, 'stream')}, {_counted(found.events, 'event')}; {_sound(len(found.wrong))}")
        for line in found.wrong:
            click.echo(safe(f"  {line}"))
    return UNHEALTHY if wrong else 0


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _sound(wrong: int) -> str:
    return _counted(wrong, "finding") if wrong else "versions are dense, ids unique, and the index is the log's"
