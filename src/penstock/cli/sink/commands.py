"""penstock sink: list and describe what flows write to."""

from dataclasses import asdict

import click

from penstock.cli.output import again_and_again, with_raw

_OUTPUT = with_raw(
    click.option("--output", type=click.Choice(["table", "jsonl", "csv"]), help="Default: a table on a terminal, else JSON lines.")
)


@click.group()
def sink() -> None:
    """Look at the sinks of flows: topics, views, stores. How far each has come, how far it lags, and what keeps it away.

    A store that is away holds back only itself: its flow goes on, and what it lacks is delivered when it is back.

    \b
    penstock sink list
    penstock sink describe shop postgres.sales
    """


@sink.command("list")
@click.argument("flow", required=False)
@click.option("--follow", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option("--every", default="1 second", metavar="DURATION", help='How often with --follow; "1 second" by default.')
@_OUTPUT
def list_(flow: str | None, follow: bool, every: str, output: str | None) -> None:
    """List the sinks of all flows, or of FLOW.

    epoch is the last one that a sink has, behind_epochs how many it lacks, behind_seconds how long ago the first of those was
    opened, before the last one.

    \b
    penstock sink list
    penstock sink list shop --follow
    """
    from penstock.core.time import duration

    if follow:
        again_and_again(lambda: _print(flow, output), output, duration(every, "--every").total_seconds())
    else:
        _print(flow, output)


def _print(flow: str | None, output: str | None) -> None:
    import pyarrow as pa

    from penstock.cli.output import print_table
    from penstock.engine.flows.sinks import sinks_of
    from penstock.storage.home import find_home

    found = [asdict(state) for state in sinks_of(find_home(), flow)]
    if found or output:
        print_table(pa.Table.from_pylist(found), output, keys=["flow", "sink", "state"])
    else:
        click.echo(f"no flow in {find_home()} writes anything yet", err=True)


@sink.command()
@click.argument("flow")
@click.argument("name")
def describe(flow: str, name: str) -> None:
    """Show one sink of FLOW: NAME is as `sink list` has it, or what it writes.

    \b
    penstock sink describe shop postgres.sales
    """
    from penstock.engine.flows.sinks import sink_of
    from penstock.storage.home import find_home

    found = sink_of(find_home(), flow, name)
    lines = {"flow": found.flow, "sink": found.sink, "writes": found.target, "state": found.state, "epoch": found.epoch}
    if found.behind_epochs:
        lines["lacks"] = f"{found.behind_epochs:,} epochs, {found.behind_seconds:,.0f} s"
    if found.cause:
        lines["because"] = found.cause
    for word, value in lines.items():
        click.echo(f"{word:<8} {value}")
