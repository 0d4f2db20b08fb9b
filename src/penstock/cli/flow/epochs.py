"""penstock epochs: how long the last epochs of a flow took, step by step."""

import click

from penstock.cli.output import raw_option


@click.command()
@click.argument("flow")
@click.option("--last", type=click.IntRange(min=1), default=20, show_default=True, metavar="N", help="How many epochs.")
@click.option("--output", type=click.Choice(["table", "jsonl", "csv"]), help="Default: a table on a terminal, else JSON lines.")
@raw_option
def epochs(flow: str, last: int, output: str | None) -> None:
    """Show the last epochs of FLOW: rows, seconds, and milliseconds of each numbered step.

    \b
    penstock epochs shop
    penstock epochs shop --last 100 --output csv
    """
    import pyarrow as pa

    from penstock.cli.output import print_table
    from penstock.engine.diagnose.inspect import decisions_of
    from penstock.engine.run.epoch.history import records
    from penstock.storage.home import find_home

    found = list(records(decisions_of(find_home(), flow).storage))[-last:]
    if not found:
        click.echo(f"flow {flow} has run no epoch yet", err=True)
        return
    names = list(dict.fromkeys(name for record in found for name in record["steps"]))
    rows = [
        {name: record[name] for name in ("epoch", "clock", "rows", "behind", "seconds")}
        | {f"{name} ms": round(record["steps"].get(name, 0.0) * 1000, 1) for name in names}
        for record in found
    ]
    print_table(pa.Table.from_pylist(rows), output, keys=["epoch"])
