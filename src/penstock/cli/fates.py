"""penstock fates: the books of a flow: what became of every row, and what would have become of it under another lateness."""

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.engine.program import Program
    from penstock.engine.whatif import Tried

UNHEALTHY = 4
_SHARES = (("99 %", 0.99), ("99.9 %", 0.999), ("100 %", 1.0))


@click.command()
@click.argument("flow")
@click.option(
    "--lateness",
    metavar="DURATION",
    help="Judge the stored rows once more, on the side, as if the flow's streams had this lateness; changes nothing.",
)
@click.option("--output", type=click.Choice(["table", "jsonl", "csv"]), help="Default: a table on a terminal, else JSON lines.")
def fates(flow: str, lateness: str | None, output: str | None) -> int:
    """Print the books of FLOW (its name, or the file that defines it): rows in = the sum of their fates.

    Where windows overlap, a row is judged by each of its windows: then `judged` counts rows, `windows` counts rows times windows,
    and on time, corrected, diverted and ignored are of the latter. Exit code 4 if the books do not balance.

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
    _what_if(find_home(), flow, lateness, output)
    return 0


def _books(home: "Path", flow: str, output: str | None) -> int:
    import pyarrow as pa

    from penstock.cli.load import load_flows
    from penstock.cli.output import print_table
    from penstock.engine.inspect import decisions_of
    from penstock.engine.progress import balance

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
        print_table(pa.Table.from_pylist(_lines(name, books, wrong)), output)
        unbalanced += [f"{name}, step {step}: {rows} in, {known} accounted for" for step, (rows, known) in wrong.items()]
    if not unbalanced:
        return 0
    click.echo("the books do not balance:\n  " + "\n  ".join(unbalanced), err=True)
    return UNHEALTHY


def _lines(name: str, books: Any, wrong: dict[str, Any]) -> list[dict[str, Any]]:
    """A line for each step, with the fates that any step has seen."""
    from penstock.engine.progress import BY_WINDOW, SETTLED, VERDICTS

    known = (*SETTLED, "judged", "windows", *VERDICTS)
    used = [fate for fate in known if any(counts.get(fate) for counts in books.values())]
    return [
        {"flow": name, "step": step, "in": counts.get("in", 0)}
        | {fate: counts.get(fate, 0) for fate in used}
        | {"balanced": step not in wrong and f"{step}{BY_WINDOW}" not in wrong}
        for step, counts in books.items()
    ]


def _what_if(home: "Path", flow: str, lateness: str, output: str | None) -> None:
    import pyarrow as pa

    from penstock.cli.load import load_flows
    from penstock.cli.output import print_table
    from penstock.core.time import duration, micros
    from penstock.engine.decision import Decisions
    from penstock.engine.following import marks_of, programs
    from penstock.engine.whatif import what_if
    from penstock.errors import BadInput
    from penstock.storage.local import LocalStorage

    other = micros(duration(lateness, "lateness"))
    if not flow.endswith(".py"):
        raise BadInput(
            "--lateness needs the flow's program", hint=f'give its file: penstock fates {flow}.py --lateness "{lateness}"'
        )
    for program, log in programs(home, load_flows([flow])):
        name = program.plan.flow
        marks = marks_of(Decisions(LocalStorage(str(home / "flows" / name)), name))
        topics = {spec.topic: log.topic(spec.topic) for spec in program.sources.values() if spec.there}
        tried = what_if(program, topics, marks, other)
        rows = [line for t in tried for line in _tried(program, t, other)]
        if not rows:
            click.echo(f"flow {name}: no step judges rows of a stream that is there", err=True)
            continue
        print_table(pa.Table.from_pylist(rows), output)
        for t in tried:
            _remarks(t)


def _tried(program: "Program", tried: "Tried", other: int) -> list[dict[str, Any]]:
    """Two lines for a step: as it is, and as it would be."""
    from datetime import timedelta

    from penstock.core.time import duration_text
    from penstock.engine.disorder import rounded_text

    own = {program.sources[s].lateness for s in tried.sources}
    known = " / ".join(duration_text(timedelta(microseconds=us)) for us in sorted(us for us in own if us is not None))
    settings = [("now", known or "by marks", tried.own)]
    settings.append(("what if", duration_text(timedelta(microseconds=other)), tried.other))
    least = {f"keeps {words}": rounded_text(tried.keeping(share)) for words, share in _SHARES}
    return [
        {"flow": program.plan.flow, "step": tried.step, "setting": word, "lateness": lateness}
        | {fate: fates[fate] for fate in ("on time", "corrected", "late", "outside")}
        | least
        for word, lateness, fates in settings
    ]


def _remarks(tried: "Tried") -> None:
    if tried.late_by_mark:
        click.echo(f"{tried.step}: {tried.late_by_mark:,} are late whatever the lateness: a mark stands before them", err=True)
    for step in dict.fromkeys(tried.spark):
        click.echo(f"{tried.step}: what comes through {step} is not counted: only Spark SQL can evaluate it", err=True)
