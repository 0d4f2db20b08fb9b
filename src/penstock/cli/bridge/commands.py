"""penstock bridge: messages of queues into topics, and records of topics into queues."""

from typing import Any

import click

from penstock.cli.log import with_log
from penstock.cli.queue.at import opened_queues, with_at


@click.group()
def bridge() -> None:
    """Move messages from a queue into a topic, or records of a topic into a queue, on any log and any broker.

    \b
    penstock bridge run queue:orders topic:orders --at "amqp://shop@rabbit?password=env:RABBIT_PASSWORD" --follow
    penstock bridge run topic:invoices queue:emails --at amqp://localhost
    """


@bridge.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--name", metavar="NAME", help="Names this bridge, and what it remembers; FROM-to-TO by default.")
@click.option("--follow", is_flag=True, help="On and on, until Ctrl-C; also while a broker is away.")
@click.option("--batch", type=click.IntRange(min=1), default=1_000, metavar="N", help="Messages at a time; 1000 by default.")
@click.option(
    "--remember", type=click.IntRange(min=0), metavar="N", help="Into a topic: ids that doubles are told by; 100000 by default."
)
@click.option("--span", metavar="DURATION", help='Into a topic: how long they are remembered; "1 day" by default.')
@click.option("--quiet", is_flag=True, help="Only the closing line.")
def run(source: str, target: str, quiet: bool, follow: bool, **options: Any) -> int:
    """Run a bridge: FROM and TO are queue:NAME and topic:NAME, or the other way round.

    Into a topic, a message is acknowledged once the topic has it on disk, and is there once: one that comes again, after a crash or
    a broken connection, is known by its id. A topic that is missing is made. A message that the topic does not take goes to the
    dead letters. Of one name, one bridge runs at a time: the newest.

    Into a queue, an offset is committed once the queue has confirmed; the id of a message is topic/partition/offset. After a crash
    a message may come twice, with the same id. Several bridges of one name share the partitions.

    Ends when there is nothing more to move, or with --follow at Ctrl-C, and says what it did.

    \b
    penstock bridge run queue:orders topic:orders --at amqp://localhost
    penstock bridge run topic:invoices queue:emails --follow
    """
    from penstock.cli.bridge.run import Order, run_bridge

    order = Order(source, target, follow, quiet, options)
    with opened_queues() as queues:
        return run_bridge(queues, order)


with_log(bridge)
with_at(bridge)
