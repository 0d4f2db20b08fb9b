"""penstock events: streams of event stores, their events, their state at any moment, their history, and whether all is sound."""

from pathlib import Path

import click

from penstock.cli.log import with_log
from penstock.cli.output import with_raw

_OUTPUT = with_raw(
    click.option("--output", type=click.Choice(["table", "jsonl", "csv"]), help="Default: a table on a terminal, else JSON lines.")
)
_STORE = click.option("--store", metavar="NAME", help="The event store; may be left out where the log has only one.")
_OF = click.option(
    "--of", metavar="FILE.py[:CLASS]", required=True, help="The class that folds the events, with the events in the same file."
)
_MAYBE_OF = click.option(
    "--of", metavar="FILE.py[:CLASS]", help="The class that folds the events: what each of them changed is shown."
)


@click.group()
def events() -> None:
    """Look into event stores: topics whose records are events, each with its version in a stream.

    \b
    penstock events streams
    penstock events show cart-1
    penstock events state cart-1 --of cart.py --at 2024-01-15T10:00:00Z
    penstock events history cart-1 --of cart.py
    penstock events export cart-1 --of cart.py --as-test
    penstock events verify
    """


@events.command()
@_STORE
@_OUTPUT
def streams(store: str | None, output: str | None) -> None:
    """List the streams of a store: how many events each has, its version, and when the first and the last of them happened.

    \b
    penstock events streams
    penstock events streams --store carts --output jsonl
    """
    from penstock.cli.events.show import print_streams

    print_streams(store, output)


@events.command()
@click.argument("stream")
@click.option("--from", "start", type=click.IntRange(min=1), default=1, metavar="VERSION", help="From this version on.")
@click.option("--to", "stop", type=click.IntRange(min=1), metavar="VERSION", help="Up to this version.")
@_STORE
@_OUTPUT
def show(stream: str, start: int, stop: int | None, store: str | None, output: str | None) -> None:
    """Show the events of STREAM as they are stored. JSON lines have ids, and where each event stands in the log, too.

    \b
    penstock events show cart-1
    penstock events show cart-1 --from 10 --to 20 --output jsonl
    """
    from penstock.cli.events.show import print_events

    print_events(stream, start, stop, store, output)


@events.command()
@click.argument("stream")
@_OF
@click.option("--at", metavar="TIME", help="As it was just before this moment; as it is now by default.")
@click.option("--version", type=click.IntRange(min=0), metavar="N", help="As it was behind this version.")
@_STORE
@_OUTPUT
def state(stream: str, of: str, at: str | None, version: int | None, store: str | None, output: str | None) -> None:
    """Show the state of STREAM, now or at any moment: what folding its events up to then gives.

    \b
    penstock events state cart-1 --of cart.py
    penstock events state cart-1 --of cart.py:Cart --at 2024-01-15T10:00:00Z
    penstock events state cart-1 --of cart.py --version 3
    """
    from penstock.cli.events.folded import print_state

    print_state(stream, of, at, version, store, output)


@events.command()
@click.argument("stream")
@_MAYBE_OF
@_STORE
@_OUTPUT
def history(stream: str, of: str | None, store: str | None, output: str | None) -> None:
    """Show who did what to STREAM and when, and with --of what each event changed.

    correlation names the conversation that an event belongs to, causation the event or command that it followed from.

    \b
    penstock events history cart-1
    penstock events history cart-1 --of cart.py
    """
    from penstock.cli.events.folded import print_history

    print_history(stream, of, store, output)


@events.command()
@click.argument("stream")
@_OF
@click.option("--as-test", is_flag=True, help="A test for pytest that folds the events and expects the state behind each.")
@click.option("--to", "file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write it there.")
@_STORE
def export(stream: str, of: str, as_test: bool, file: Path | None, store: str | None) -> None:
    """Write what happened to STREAM as Python: a list of events, or with --as-test a test that runs.

    \b
    penstock events export cart-1 --of cart.py --as-test --to test_cart_1.py
    """
    from penstock.cli.events.folded import export_stream

    export_stream(stream, of, as_test, file, store)


@events.command()
@_STORE
def verify(store: str | None) -> int:
    """Read a store whole: versions are dense, ids unique, times in order, and the index says what the log says.

    All stores of the log, where none is named. Exit code 4 if something is wrong.

    \b
    penstock events verify
    penstock events verify --store carts
    """
    from penstock.cli.events.show import print_verified

    return print_verified(store)


with_log(events)
