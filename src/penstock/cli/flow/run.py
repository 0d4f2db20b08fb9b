"""penstock run: flows from files, until stopped, to the end of what is there, or to the end of everything."""

import click

from penstock.cli.conf import spark_settings
from penstock.cli.log import with_log


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FLOW.py...")
@click.option("--catch-up", is_flag=True, help="Read to the ends found at the start, then stop. Open windows stay open.")
@click.option("--drain", is_flag=True, help="Read everything, mark the end of every input, close all windows, then stop.")
@click.option("--every", metavar="DURATION", help='Start an epoch at most this often, e.g. "1 second".')
@click.option("--max-rows", type=click.IntRange(min=1), metavar="N", help="At most about N rows in one epoch (whole frames).")
@click.option("--master", metavar="URL", help="Spark master, e.g. local[4] or spark://host:7077.")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="Any Spark setting; may be given several times.")
@click.option(
    "--pack", type=click.Path(dir_okay=False), metavar="FILE", help="What `penstock pack` made, for the executors of a cluster."
)
@click.option(
    "--buckets", type=click.IntRange(min=1, max=4096), metavar="N", help="Number of state buckets (kept from run to run)."
)
@click.option(
    "--accept-gap", is_flag=True, help="Where retention removed rows before they were read, go on behind them; the books say so."
)
@click.option(
    "--capture", "captures", multiple=True, metavar="NAME", help="Run this capture beside the flows; may be given several times."
)
@click.option("--quiet", is_flag=True, help="No progress, only the closing line.")
def run(
    files: tuple[str, ...],
    catch_up: bool,
    drain: bool,
    every: str | None,
    max_rows: int | None,
    master: str | None,
    conf: tuple[str, ...],
    pack: str | None,
    buckets: int | None,
    accept_gap: bool,
    captures: tuple[str, ...],
    quiet: bool,
) -> None:
    """Run the flows that FLOW.py defines.

    \b
    penstock run shop.py                      until Ctrl-C, which finishes the epoch
    penstock run shop.py --catch-up           what is there now
    penstock run shop.py --drain              … and close every window
    penstock run shop.py report.py            several flows at once
    penstock run shop.py --capture shop       … and the capture that writes what they read
    penstock run shop.py --master spark://host:7077 --pack env.tar.gz
    """
    if catch_up and drain:
        raise click.UsageError("--catch-up and --drain exclude each other: --drain catches up first")
    from penstock.cli.cdc.beside import captures_beside
    from penstock.cli.flow.load import load_flows
    from penstock.cli.flow.show import TerminalShow
    from penstock.engine.run.options import Mode, RunOptions
    from penstock.engine.run.service import serve
    from penstock.engine.run.signals import ended_by_signals
    from penstock.engine.spark.executors import PACK

    mode: Mode = "catch_up" if catch_up else "drain" if drain else "run"
    settings = spark_settings(conf) | ({PACK: pack} if pack else {})
    options = RunOptions(mode, every, None, master, settings, max_rows, buckets, accept_gap)
    with ended_by_signals(), TerminalShow(quiet) as show:
        graphs = load_flows(files)
        with captures_beside(captures, graphs, options, show) as stop:
            serve(graphs, options, show, stop)


with_log(run)
