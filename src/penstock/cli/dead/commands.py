"""penstock dead: look at the rows on which flows failed, and send their records back."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.log import with_log

if TYPE_CHECKING:
    from penstock.engine.flows.dead import DeadLetter

_OUTPUT = click.option(
    "--output", type=click.Choice(["table", "jsonl", "csv"]), help="Default: a table on a terminal, else JSON lines."
)
_CHOOSING = (
    click.option("--step", metavar="STEP", help="Only letters of this step."),
    click.option(
        "--where", metavar="SQL", help="Only letters for which this holds: fields of the row, step, expression, cause, reason…"
    ),
)


def _choosing(command: Any) -> Any:
    for option in reversed(_CHOOSING):
        command = option(command)
    return command


@click.group()
def dead() -> None:
    """Dead letters of flows: rows that could not be read, on which an expression or a function failed, or that an action could not
    send.

    They stand in the topic FLOW.dead, with step, expression, cause and the row. Queues have dead letters of their own: `penstock
    queue redrive`.

    \b
    penstock dead list
    penstock dead show shop --step totals
    penstock dead redrive shop --dry-run
    """


@dead.command("list")
@click.argument("flow", required=False)
@_OUTPUT
def list_(flow: str | None, output: str | None) -> None:
    """Count the dead letters by flow, step, expression and cause; of FLOW, or of all flows that have run here.

    \b
    penstock dead list
    penstock dead list shop --output jsonl
    """
    from penstock.cli.dead.show import print_counts

    if not print_counts(flow, output):
        click.echo("no dead letters", err=True)


@dead.command()
@click.argument("flow")
@_choosing
@click.option("--max", "most", type=click.IntRange(min=1), default=20, metavar="N", help="The last N of them; 20 by default.")
@_OUTPUT
def show(flow: str, step: str | None, where: str | None, most: int, output: str | None) -> None:
    """Show the last dead letters of FLOW: where the row came from, its time, what failed and why, and the row.

    \b
    penstock dead show shop
    penstock dead show shop --where "cause = 'DIVIDE_BY_ZERO' and amount > 100" --output jsonl
    """
    from penstock.cli.dead.show import print_letters

    if not print_letters(flow, _chosen(step, where), most, output):
        click.echo("no dead letters", err=True)


@dead.command()
@click.argument("flow")
@_choosing
@click.option("--max", "most", type=click.IntRange(min=1), metavar="N", help="At most N of them.")
@click.option("--again", is_flag=True, help="Also those that were sent back before.")
@click.option("--dry-run", is_flag=True, help="Show what would be sent back, and what would be late; send nothing.")
@_OUTPUT
def redrive(flow: str, step: str | None, where: str | None, **options: Any) -> None:
    """Send the records of dead letters of FLOW back: each is appended to the topic and partition it came from, with its key and
    time, and a header redrive-of that names the record it was. An action that was given up is sent again, with the same key.

    It is a new record: every step that reads the topic takes it, and judges it by the watermark of now. Once each, unless --again.

    \b
    penstock dead redrive shop --dry-run
    penstock dead redrive shop --step totals --where "cause = 'CAST_INVALID_INPUT'"
    """
    from penstock.cli.dead.show import redriven

    redriven(flow, _chosen(step, where), **options)


def _chosen(step: str | None, where: str | None) -> "Callable[[DeadLetter], bool]":
    from penstock.cli.dead.show import holds

    condition = holds(where)
    return lambda letter: (step is None or letter.step == step) and condition(letter)


with_log(dead)
