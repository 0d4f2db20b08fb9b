"""The option --at, and the queues that it leads to."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from penstock.queue.port import QueuesPort
    from penstock.queue.queue import Queue

C = TypeVar("C", bound=click.Command)
HELP = "Where the queues are, e.g. amqp://host; those of the embedded log by default. Also PENSTOCK_QUEUES."


def _take(ctx: click.Context, option: click.Parameter, at: str | None) -> None:
    if at is not None:
        from penstock.queue.open import VARIABLE

        os.environ[VARIABLE] = at


def with_at(command: C) -> C:
    """The command, and all commands below it, with the option --at."""
    command.params.append(click.Option(["--at"], metavar="URL", help=HELP, callback=_take, expose_value=False))
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        with_at(each)
    return command


@contextmanager
def opened_queues() -> "Iterator[QueuesPort]":
    """The queues, for the time of a `with`; those in memory are of no use to a command."""
    from penstock.errors import BadInput
    from penstock.queue.open import MEMORY, VARIABLE, Closing, open_queues

    if os.environ.get(VARIABLE) == MEMORY:
        raise BadInput(
            "queues in memory belong to the process that made them, and this is another one",
            hint=f"leave --at out (and {VARIABLE}) for those of the embedded log, or say --at amqp://host",
        )
    queues = open_queues()
    try:
        yield queues
    finally:
        if isinstance(queues, Closing):
            queues.close()


@contextmanager
def opened(name: str) -> "Iterator[Queue]":
    """A queue that is there; NotFound if it is not: a name that was mistyped makes none."""
    from penstock.queue.queue import Queue

    with opened_queues() as queues:
        yield Queue(queues.queue(name), queues)
