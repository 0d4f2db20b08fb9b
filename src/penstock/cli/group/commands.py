"""penstock group: list, describe, reset and delete groups of readers."""

import click

from penstock.cli.log import with_log
from penstock.cli.output import again_and_again, with_raw

_OUTPUT = with_raw(
    click.option("--output", type=click.Choice(["table", "jsonl", "csv"]), help="Default: a table on a terminal, else JSON lines.")
)


@click.group()
def group() -> None:
    """Look at the groups that read topics: who owns which partition, how far each has come, and what blocks it.

    Flows are readers too, called flow.NAME.

    \b
    penstock group describe web-analytics --follow
    penstock group reset web-analytics page-views --to 2024-01-15T10:00:00Z
    """


@group.command("list")
@_OUTPUT
def list_(output: str | None) -> None:
    """List the groups: a line for each topic that a group reads.

    lag_records counts offsets that are not committed, lag_seconds how long ago the oldest of them was written.

    \b
    penstock group list
    """
    from penstock.cli.group.show import print_list
    from penstock.storage.home import find_home

    if not print_list(output):
        click.echo(f"no groups in {find_home()}; a group is made when its first member joins", err=True)


@group.command()
@click.argument("name")
@click.option("--follow", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option("--every", default="1 second", metavar="DURATION", help='How often with --follow; "1 second" by default.')
@_OUTPUT
def describe(name: str, follow: bool, every: str, output: str | None) -> None:
    """Show the group NAME: a line for each partition, with its owner, offset, lag, and the record in hand.

    in_hand is the first record that the owner has taken and not finished, in_hand_seconds for how long: a record that blocks its
    partition stands there. Members are told on standard error, with how long ago each gave a sign of life.

    \b
    penstock group describe web-analytics
    penstock group describe web-analytics --follow --output jsonl
    """
    from penstock.cli.group.show import print_group
    from penstock.core.time import duration

    if follow:
        again_and_again(lambda: print_group(name, output), output, duration(every, "--every").total_seconds())
    else:
        print_group(name, output)


@group.command()
@click.argument("name")
@click.argument("topic")
@click.option("--to", required=True, metavar="WHERE", help="earliest, latest, an offset, or an event time.")
@click.option("--partition", type=click.IntRange(min=0), multiple=True, metavar="N", help="Only this one; may be repeated.")
@click.option("--yes", is_flag=True, help="Do it; without, what would happen is shown and nothing changes.")
@_OUTPUT
def reset(name: str, topic: str, to: str, partition: tuple[int, ...], yes: bool, output: str | None) -> None:
    """Set the group NAME back or forward in TOPIC. Shows what would be read again and what skipped; --yes does it.

    Refused while members are alive, and for flows, whose offsets belong to their state. A time means, per partition, the first row
    of that event time or later.

    \b
    penstock group reset web-analytics page-views --to earliest
    penstock group reset web-analytics page-views --to 2024-01-15T10:00:00Z --yes
    penstock group reset web-analytics page-views --to 1200 --partition 2 --yes
    """
    from penstock.cli.group.show import print_moves
    from penstock.cli.topic.consume import place
    from penstock.log.groups.resetting import carry_out, plan
    from penstock.log.open import open_log

    log = open_log()
    groups, found = log.groups(), log.topic(topic)
    moves = plan(groups, name, found, place(to, "--to"), partition or None)
    if yes:
        carry_out(groups, name, found, moves)
    print_moves(moves, output)
    again, skipped = sum(move.again for move in moves), sum(move.skipped for move in moves)
    told = f"{again:,} to be read again, {skipped:,} skipped"
    click.echo(f"group {name} is set: {told}" if yes else f"nothing changed; --yes would set it: {told}", err=True)


@group.command()
@click.argument("name")
@click.argument("topic", required=False)
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete(name: str, topic: str | None, yes: bool) -> None:
    """Forget the group NAME, or only its place in TOPIC: retention waits for it no longer. No record is touched.

    \b
    penstock group delete web-analytics
    """
    from penstock.log.open import open_log

    groups = open_log().groups()
    states = [state for state in groups.describe(name) if topic in (None, state.topic)]
    if states and not yes:
        click.confirm(f"forget group {name} ({', '.join(state.topic for state in states)})?", abort=True)
    groups.forget(name, topic)
    click.echo(f"forgot group {name}", err=True)


with_log(group)
