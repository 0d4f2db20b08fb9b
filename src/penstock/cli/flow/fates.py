"""penstock fates: the books of a flow: what became of every row, and what would have become of it under another lateness."""

from typing import TYPE_CHECKING, Any

import click

from penstock.cli.log import with_log
from penstock.cli.output import raw_option

if TYPE_CHECKING:
    from pathlib import Path

UNHEALTHY = 4


@click.command()
@click.argument("flow")
@click.option(
    "--lateness",
    metavar="DURATION",
    help="Judge the stored rows once more, on the side, as if the flow's streams had this lateness; changes nothing.",
)
@click.option("--output", type=click.Choice(["table", "jsonl", "csv"]), help="Default: a table on a terminal, else JSON lines.")
@raw_option
def fates(flow: str, lateness: str | None, output: str | None) -> int:
    """Print the books of FLOW (its name, or the file that defines it): rows in = the sum of their fates.

    Where windows overlap, a row is judged by each of its windows: then `judged` counts rows, `late rows` those that some window
    refused, `windows` rows times windows, and on time, corrected, diverted and ignored are of the latter. Of lookups, `keys`,
    `from cache`, `calls` and `failed calls` count keys and calls, not rows; `gone` counts offsets that retention had removed
    before a run with --accept-gap came to them.
    Of sources, `offsets` = `in` + `marks` + `absent`: those that hold no row are counted, too (compacted away; on Kafka also
    aborted, and the ends of transactions), but not what version 0.1.0 has read, which did not count. Exit code 4 if they do not
    balance.

    With --lateness, for each step that judges rows of a stream: how many of the stored rows are on time and late under the flow's
    own setting and under this one, and the least lateness that keeps 99 %, 99.9 % and all of them. It needs the flow's file.

    \b
    penstock fates shop
    penstock fates shop.py --output jsonl
    penstock fates shop.py --lateness "30 seconds"
    """
    from penstock.storage.home import find_home

    if lateness is None:
        return _books(find_home(), flow, output)
    from penstock.cli.flow.whatif import print_what_if

    print_what_if(find_home(), flow, lateness, output)
    return 0


def _books(home: "Path", flow: str, output: str | None) -> int:
    import pyarrow as pa

    from penstock.cli.flow.load import load_flows
    from penstock.cli.output import print_table
    from penstock.engine.diagnose.inspect import decisions_of
    from penstock.engine.run.progress import balance, unaccounted

    names = [g.name for g in load_flows([flow])] if flow.endswith(".py") else [flow]
    unbalanced = []
    for name in names:
        last = decisions_of(home, name).last()
        books = last.fates if last else {}
        if not books:
            click.echo(f"flow {name} has not read anything yet", err=True)
            continue
        sums = {step: (rows, known) for step, rows, known in balance(books)}
        wrong = {step: (rows, known) for step, (rows, known) in sums.items() if rows != known}
        unread = unaccounted(last) if last else {}
        lines = _lines(name, books, last.accounts if last else {}, {*wrong, *unread})
        print_table(pa.Table.from_pylist(lines), output, keys=["flow", "step", "in", "balanced"])
        dead = sum(counts.get("dead", 0) for counts in books.values())
        if dead:
            click.echo(f"{name}: {dead:,} dead (penstock dead list {name})", err=True)
        unbalanced += [f"{name}, step {step}: {rows} in, {known} accounted for" for step, (rows, known) in wrong.items()]
        unbalanced += [f"{name}, source {source}: {why}" for source, why in unread.items()]
    if not unbalanced:
        return 0
    click.echo("the books do not balance:\n  " + "\n  ".join(unbalanced), err=True)
    return UNHEALTHY


def _lines(name: str, books: Any, accounts: Any, wrong: set[str]) -> list[dict[str, Any]]:
    """A line for each step, with the fates that any step has seen, and what the offsets of sources held."""
    from penstock.engine.run.progress import BY_WINDOW, GONE, LOOKED_UP, SETTLED, VERDICTS
    from penstock.log.accounting import ABSENT, MARKS, OFFSETS

    held = [what for what in (OFFSETS, MARKS, ABSENT) if any(account.get(what) for account in accounts.values())]
    known = (GONE, *SETTLED, "judged", "late rows", "windows", *VERDICTS, *LOOKED_UP)
    used = [fate for fate in known if any(counts.get(fate) for counts in books.values())]
    return [
        {"flow": name, "step": step}
        | {what: accounts.get(step, {}).get(what) for what in held}
        | {"in": counts.get("in", 0)}
        | {fate: counts.get(fate, 0) for fate in used}
        | {"balanced": step not in wrong and f"{step}{BY_WINDOW}" not in wrong}
        for step, counts in books.items()
    ]


with_log(fates)
