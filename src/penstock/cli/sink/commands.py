"""penstock sink: what flows write to, how far it has come, whether it is what it should be."""

from dataclasses import asdict

import click

from penstock.cli.log import with_log
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
    penstock sink reconcile shop.py
    penstock sink rebuild shop.py redis.users
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

    found = [{name: value for name, value in asdict(s).items() if name != "hint"} for s in sinks_of(find_home(), flow)]
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
    if found.hint:
        lines["hint"] = found.hint
    for word, value in lines.items():
        click.echo(f"{word:<8} {value}")


_FROM_VIEW = click.option("--from-view", metavar="VIEW", help="A view of the same step says what it should hold, not the log.")
_QUIET = click.option("--quiet", is_flag=True, help="No progress.")
_MASTER = click.option("--master", metavar="URL", help="Spark master, e.g. local[4] or spark://host:7077.")


@sink.command()
@click.argument("file")
@click.argument("names", nargs=-1, metavar="[SINK]...")
@click.option("--repair", is_flag=True, help="Write what differs, with the marker, in one transaction of the store.")
@_FROM_VIEW
@_MASTER
@_QUIET
@_OUTPUT
def reconcile(
    file: str, names: tuple[str, ...], repair: bool, from_view: str | None, master: str | None, quiet: bool, output: str | None
) -> int:
    """Compare stores with the log: all that the flows in FILE write to, or these SINKs.

    What a store should hold at the epoch that it has is computed again from the log, on the side, and compared by checksums, down
    to the rows that differ and how. The flow may run meanwhile. Exit code 4 if a store differs.

    \b
    penstock sink reconcile shop.py
    penstock sink reconcile shop.py postgres.sales --repair
    """
    from penstock.cli.sink.instep import Asked, run_reconcile

    return run_reconcile(Asked(file, from_view, master, quiet, output), names, repair)


@sink.command()
@click.argument("file")
@click.argument("name", metavar="SINK")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_FROM_VIEW
@_MASTER
@_QUIET
@_OUTPUT
def rebuild(file: str, name: str, yes: bool, from_view: str | None, master: str | None, quiet: bool, output: str | None) -> int:
    """Fill SINK of a flow in FILE anew: a store that was emptied, lost, or belongs to an earlier life of the flow.

    What it should hold is computed from the log on the side, while the flow and its other sinks go on; then it is written with the
    marker in one transaction of the store, which has what it had until then. Rows that the log does not have are taken out.

    \b
    penstock sink rebuild shop.py redis.users
    penstock sink rebuild shop.py redis.users --from-view users --yes
    """
    from penstock.cli.sink.instep import Asked, run_rebuild

    return run_rebuild(Asked(file, from_view, master, quiet, output), name, yes)


with_log(reconcile)
with_log(rebuild)
