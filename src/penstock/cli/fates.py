"""penstock fates: the books of a flow: what became of every row, step by step."""

import click

FATES = ("filtered", "dead", "implausible", "duplicate", "outside", "held", "passed", "on time", "corrected", "diverted", "ignored")


@click.command()
@click.argument("flow")
@click.option("--output", type=click.Choice(["table", "jsonl", "csv"]), help="Default: a table on a terminal, else JSON lines.")
def fates(flow: str, output: str | None) -> None:
    """Print the books of FLOW (its name, or the file that defines it): rows in = the sum of their fates.

    Exit code 4 if the books do not balance.

    \b
    penstock fates shop
    penstock fates shop.py --output jsonl
    """
    import pyarrow as pa

    from penstock.cli.load import load_flows
    from penstock.cli.output import print_table
    from penstock.engine.inspect import decisions_of
    from penstock.engine.progress import balance
    from penstock.storage.home import find_home

    names = [g.name for g in load_flows([flow])] if flow.endswith(".py") else [flow]
    unbalanced = []
    for name in names:
        last = decisions_of(find_home(), name).last()
        books = last.fates if last else {}
        sums = {step: (rows_in, known) for step, rows_in, known in balance(books)}
        used = [f for f in FATES if any(counts.get(f) for counts in books.values())]
        rows = [
            {"flow": name, "step": step, "in": counts.get("in", 0)}
            | {f: counts.get(f, 0) for f in used}
            | {"balanced": sums[step][0] == sums[step][1]}
            for step, counts in books.items()
        ]
        if not rows:
            click.echo(f"flow {name} has not read anything yet", err=True)
            continue
        print_table(pa.Table.from_pylist(rows), output)
        unbalanced += [f"{name}, step {step}: {a} in, {b} accounted for" for step, (a, b) in sums.items() if a != b]
    if unbalanced:
        click.echo("the books do not balance:\n  " + "\n  ".join(unbalanced), err=True)
        raise SystemExit(4)
