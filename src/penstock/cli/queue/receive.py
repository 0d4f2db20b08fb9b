"""penstock queue receive, and what is told of messages that were moved."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import click
import pyarrow as pa

from penstock.cli.output import print_table
from penstock.cli.queue.messages import first_reason, print_letters
from penstock.cli.topic.produce import INTERRUPTED, Interrupt
from penstock.cli.topic.rows import readable
from penstock.core.time import duration
from penstock.errors import BadInput
from penstock.queue.client.consumer import QueueConsumer
from penstock.queue.message import Received
from penstock.queue.moving import Moved
from penstock.queue.queue import Queue

NOT_FOUND = 3
TOGETHER = 100  # messages that are borrowed, printed and settled in one go
_LOOK = 0.1  # seconds after which Ctrl-C is noticed
MOVES = pa.schema([(name, pa.string()) for name in ("id", "to", "body", "sent_as", "reason")])


@dataclass(frozen=True)
class Taking:
    """What to take, and what becomes of it."""

    most: int | None = None
    wait: str = "0 seconds"
    follow: bool = False
    fate: str | None = None  # None: given back as it came
    delay: str | None = None
    reason: str = ""
    output: str | None = None

    @property
    def end(self) -> int | None:
        return self.most if self.most is not None else None if self.follow else 1

    def check(self) -> None:
        if self.follow and self.fate is None:
            raise BadInput("--follow needs to know what becomes of the messages", hint="add --ack, --nack or --reject")
        if self.delay is not None and self.fate != "nack":
            raise BadInput("--delay is for messages that are given back", hint="add --nack")


def take(queue: Queue, order: Taking) -> int:
    """Prints messages and settles them; the exit code. What could not be printed is given back."""
    order.check()
    count = 0
    with Interrupt() as interrupt, queue.consumer(prefetch=order.end or TOGETHER) as consumer, ExitStack() as at_the_end:
        for messages in _batches(consumer, order, interrupt):
            print_letters(messages, order.output)
            sys.stdout.flush()  # before they are settled: a reader that has left has not got them
            count += len(messages)
            if order.fate is None:
                for message in messages:  # not now: they would come again
                    at_the_end.callback(message.release)
            else:
                _settle(consumer, messages, order)
    if interrupt.asked and not order.follow:
        return INTERRUPTED
    return NOT_FOUND if count == 0 and not order.follow else 0


def _batches(consumer: QueueConsumer, order: Taking, interrupt: Interrupt) -> Iterator[Sequence[Received]]:
    deadline, count = time.monotonic() + duration(order.wait, "--wait").total_seconds(), 0
    while not interrupt.asked and (order.end is None or count < order.end):
        left = _LOOK if order.follow else max(0.0, min(_LOOK, deadline - time.monotonic()))
        most = TOGETHER if order.end is None else min(TOGETHER, order.end - count)
        messages = consumer.receive(most, f"{left:.3f} seconds")
        if messages:
            count, deadline = count + len(messages), 0.0
            yield messages
        elif not order.follow and time.monotonic() >= deadline:
            return


def _settle(consumer: QueueConsumer, messages: Sequence[Received], order: Taking) -> None:
    if order.fate == "ack":
        consumer.ack(messages)
        return
    for message in messages:
        if order.fate == "nack":
            message.nack(order.delay, order.reason)
        else:
            message.reject(order.reason)


def print_moved(moved: Moved, name: str, dry_run: bool, output: str | None) -> None:
    """What was moved, or would be: the first ones one by one if it was asked for, and how many."""
    if dry_run or output:
        rows = [
            {
                "id": change.before.id,
                "to": change.to,
                "body": readable(change.before.body),
                "sent_as": readable(change.after.body) if change.after.body != change.before.body else None,
                "reason": first_reason(change.before),
            }
            for change in moved.changes
        ]
        print_table(pa.Table.from_pylist(rows, MOVES), output, keys=["id"])
    count = f"{moved.moved:,} message{'' if moved.moved == 1 else 's'}"
    told = f"nothing moved; {count} of {name} would be" if dry_run else f"moved {count} of {name}"
    click.echo(f"{told} · {moved.left:,} left where they are", err=True)
