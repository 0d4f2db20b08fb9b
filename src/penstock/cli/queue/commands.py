"""penstock queue: create, list, describe, write, read, move, redrive and delete queues."""

from typing import Any, BinaryIO

import click

from penstock.cli.output import again_and_again, with_raw
from penstock.cli.queue.at import opened, opened_queues, with_at

_OUTPUT = with_raw(
    click.option("--output", type=click.Choice(["table", "jsonl", "csv"]), help="Default: a table on a terminal, else JSON lines.")
)
_MOVING = (
    click.option("--where", metavar="SQL", help="Only messages for which this holds: fields of a JSON body, id, key, reason…"),
    click.option("--set", "changes", multiple=True, metavar="FIELD=VALUE", help="Set a field of the JSON body; may be repeated."),
    click.option("--max", "most", type=click.IntRange(min=1), metavar="N", help="At most N messages."),
    click.option("--dry-run", is_flag=True, help="Show what would be moved, and move nothing."),
    _OUTPUT,
)


def _moving(command: Any) -> Any:
    for option in reversed(_MOVING):
        command = option(command)
    return command


@click.group()
def queue() -> None:
    """Queues of single messages: each is lent to one consumer at a time, until one of them acknowledges it.

    A message that is given back, or whose lease runs out, is lent again; after the last try it goes to the dead letters, which are
    a queue, too: NAME.dead.

    \b
    penstock queue create emails --lease "1 minute" --tries 3
    penstock queue send emails '{"to": "ann@example.com"}'
    penstock queue receive emails --ack
    penstock queue redrive emails.dead --dry-run
    """


@queue.command()
@click.argument("name")
@click.option("--source", metavar="TOPIC", help="Take what is sent to this topic or exchange; the queue's own by default.")
@click.option("--route", "routes", multiple=True, metavar="PATTERN", help='Only these, e.g. "orders.*.eu"; may be repeated.')
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="Only those with this header; may be repeated.")
@click.option("--any-header", is_flag=True, help="One of the headers is enough.")
@click.option("--lease", metavar="DURATION", help='How long a message is lent; "30 seconds" by default.')
@click.option("--tries", type=click.IntRange(min=1), metavar="N", help="Deliveries before a message is dead; 5 by default.")
@click.option("--retry", metavar="DURATION", help="How long a message rests that was given back; not at all by default.")
@click.option("--ordered", is_flag=True, default=None, help="Of one key, one message at a time, in the order sent.")
@click.option(
    "--policy",
    type=click.Choice(["buffer", "push-back", "drop-newest", "drop-oldest"]),
    default="buffer",
    help="What happens beyond the limit; buffer by default.",
)
@click.option("--max-messages", type=click.IntRange(min=1), metavar="N", help="The limit in messages.")
@click.option("--max-bytes", metavar="SIZE", help="The limit in bytes of bodies, e.g. 64MB.")
@click.option("--dead", metavar="QUEUE", help="Where dead letters go; NAME.dead by default.")
@click.option("--start", type=click.Choice(["earliest", "latest"]), help="Where to begin in a topic that is there; earliest.")
def create(name: str, **options: Any) -> None:
    """Make the queue NAME.

    Several queues of one --source each get every message that they take. Any topic of the log can be a source.

    \b
    penstock queue create emails --lease "1 minute" --tries 3
    penstock queue create packing --source orders --route "orders.*.eu"
    penstock queue create thumbnails --policy push-back --max-messages 10000
    """
    from penstock.cli.queue.create import wishes
    from penstock.queue.options import spec_of

    spec = spec_of(name, wishes(options))
    with opened_queues() as queues:
        made = queues.create(spec).spec
    click.echo(f"queue {name} is made; what cannot be done goes to {made.dead_letters}", err=True)


@queue.command("list")
@_OUTPUT
def list_(output: str | None) -> None:
    """List the queues: messages that are ready, delayed and lent, the age of the oldest, and how many are dead letters.

    \b
    penstock queue list
    """
    from penstock.cli.queue.show import print_list

    if not print_list(output):
        click.echo("no queues here; penstock queue create NAME makes one", err=True)


@queue.command()
@click.argument("name")
@click.option("--follow", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option("--every", default="1 second", metavar="DURATION", help='How often with --follow; "1 second" by default.')
@_OUTPUT
def describe(name: str, follow: bool, every: str, output: str | None) -> None:
    """Show the queue NAME: what is in it, what became of the others since it was made, and who holds how many.

    Settings and holders are told on standard error; JSON lines hold the holders, too. lent_again counts deliveries of messages that
    somebody had before.

    \b
    penstock queue describe emails
    penstock queue describe emails --follow --output jsonl
    """
    from penstock.cli.queue.show import print_queue
    from penstock.core.time import duration

    if follow:
        again_and_again(lambda: print_queue(name, output), output, duration(every, "--every").total_seconds())
    else:
        print_queue(name, output)


@queue.command()
@click.argument("name")
@click.argument("bodies", nargs=-1)
@click.option("--file", type=click.File("rb"), help="Take the lines of this file instead of standard input.")
@click.option("--id", metavar="ID", help="The id, of one message.")
@click.option("--key", metavar="KEY", help="The key: ordered queues lend one message of a key at a time.")
@click.option("--route", metavar="ROUTE", help="The route, words with dots between them.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header; may be repeated.")
@click.option("--priority", type=click.IntRange(0, 9), metavar="N", help="0 to 9, the highest comes first.")
@click.option("--delay", metavar="DURATION", help="Not to be lent before that.")
@click.option("--ttl", metavar="DURATION", help="To the dead letters, if nobody took it by then.")
@click.option("--id-field", metavar="FIELD", help="The field of the JSON that is the id.")
@click.option("--key-field", metavar="FIELD", help="The field that is the key.")
@click.option("--route-field", metavar="FIELD", help="The field that is the route.")
@click.option("--wait", default="10 seconds", metavar="DURATION", help='For room in a full queue; "10 seconds" by default.')
@click.option("--format", "form", type=click.Choice(["json", "raw"]), default="json", help="raw: any line, sent as it is.")
@click.option(
    "--on-error", type=click.Choice(["skip", "stop"]), default="skip", help="At a line that is no message: go on (default) or stop."
)
def send(name: str, bodies: tuple[str, ...], file: BinaryIO | None, **options: Any) -> int:
    """Send messages to the queue NAME: the BODIES given, and their ids are printed; else JSON lines from a file or standard input.

    Every line is sent or told about, and counted in the last line.

    \b
    penstock queue send emails '{"to": "ann@example.com"}' --delay "1 minute"
    penstock queue send emails --file emails.jsonl --id-field message_id --key-field to
    tail -f app.log | penstock queue send lines --format raw
    """
    from penstock.cli.queue.create import order
    from penstock.cli.queue.send import send_lines, send_words
    from penstock.errors import BadInput

    if bodies and file:
        raise BadInput("messages are given as words or in a file, not both")
    if options["id"] and len(bodies) != 1:
        raise BadInput("--id is for one message", hint="--id-field takes the id of each from its JSON")
    with opened(name) as found:
        return send_words(found, bodies, order(options)) if bodies else send_lines(found, file, order(options))


@queue.command()
@click.argument("name")
@click.option("--max", "most", type=click.IntRange(min=1), metavar="N", help="At most N messages; 1, or no end with --follow.")
@click.option("--wait", default="0 seconds", metavar="DURATION", help="Wait so long for the first one; not at all by default.")
@click.option("--follow", is_flag=True, help="Go on with messages as they come, until Ctrl-C.")
@click.option("--ack", "fate", flag_value="ack", help="They are done once they are printed.")
@click.option("--nack", "fate", flag_value="nack", help="Give them back, as after a try that failed.")
@click.option("--reject", "fate", flag_value="reject", help="To the dead letters.")
@click.option("--delay", metavar="DURATION", help="With --nack: how long they rest.")
@click.option("--reason", default="", metavar="TEXT", help="With --nack and --reject: for the dead letters.")
@_OUTPUT
def receive(name: str, **options: Any) -> int:
    """Borrow messages from the queue NAME and print them; then --ack, --nack or --reject them.

    Without one of these they are given back as they came, and it was no try; `peek` shows messages without touching them. Ends with
    3 if there was none.

    \b
    penstock queue receive emails --ack
    penstock queue receive emails --max 10 --reject --reason "test data"
    penstock queue receive emails --ack --follow --output jsonl | jq .body
    """
    from penstock.cli.queue.receive import Taking, take

    with opened(name) as found:
        return take(found, Taking(**options))


@queue.command()
@click.argument("name")
@click.option("--max", "most", type=click.IntRange(min=1), default=10, metavar="N", help="At most N messages; 10 by default.")
@_OUTPUT
def peek(name: str, most: int, output: str | None) -> None:
    """Show the first messages of the queue NAME that nobody holds. They stay as they are.

    \b
    penstock queue peek emails.dead --max 100 --output jsonl
    """
    from penstock.cli.queue.messages import print_letters

    with opened(name) as found:
        print_letters(found.peek(most), output)


@queue.command()
@click.argument("name")
@click.argument("to")
@_moving
def move(name: str, to: str, **options: Any) -> None:
    """Move messages that nobody holds from the queue NAME to the queue TO. At least once, with their ids.

    \b
    penstock queue move emails parked --where "to like '%@example.com'" --dry-run
    """
    _move(name, to, False, options)


@queue.command()
@click.argument("name")
@click.option("--to", metavar="QUEUE", help="Send them there; by default each to the queue that it died in.")
@_moving
def redrive(name: str, to: str | None, **options: Any) -> None:
    """Send the dead letters in the queue NAME back to where they died. At least once, with their ids.

    Of several queues with one source, only the one gets a message back that it died in.

    \b
    penstock queue redrive emails.dead --dry-run
    penstock queue redrive emails.dead --where "reason like '%timeout%'"
    penstock queue redrive emails.dead --where "id = 'm-1'" --set to=ann@example.com
    """
    _move(name, to, True, options)


def _move(name: str, to: str | None, revive: bool, options: dict[str, Any]) -> None:
    from penstock.cli.queue.messages import condition, edit
    from penstock.cli.queue.receive import print_moved

    most, dry_run = options["most"], options["dry_run"]
    where, changed = condition(options["where"]), edit(options["changes"])
    with opened(name) as found:
        if revive:
            moved = found.redrive(to, edit=changed, where=where, most=most, dry_run=dry_run)
        else:
            moved = found.move(str(to), edit=changed, where=where, most=most, dry_run=dry_run)
    print_moved(moved, name, dry_run, options["output"])


@queue.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
def purge(name: str, yes: bool) -> None:
    """Remove all messages of the queue NAME that nobody holds. A topic that it reads keeps its records.

    \b
    penstock queue purge emails.dead --yes
    """
    with opened(name) as found:
        if not yes:
            click.confirm(f"remove {_count(found.state().ready, 'message')} of queue {name}?", abort=True)
        click.echo(f"removed {_count(found.purge(), 'message')} of queue {name}", err=True)


@queue.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete(name: str, yes: bool) -> None:
    """Delete the queue NAME with what is in it. Its dead letters stay, and so do the records of a topic that it reads.

    \b
    penstock queue delete emails
    """
    with opened_queues() as queues:
        state = queues.queue(name).state()
        count = _count(state.ready + (state.delayed or 0) + state.lent, "message")
        if not yes:
            click.confirm(f"delete queue {name} with {count}?", abort=True)
        queues.delete(name)
    click.echo(f"deleted queue {name} with {count}", err=True)


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


with_at(queue)
