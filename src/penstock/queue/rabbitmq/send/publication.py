"""A message on its way to an exchange, and what becomes of it."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from penstock.errors import BadInput
from penstock.queue.rabbitmq.amqp.channel import DIFFERENT, NOT_FOUND, Closed

Outcome = Literal["in", "refused", "returned"]
WINDOW, BYTES = 1_000, 4 << 20  # messages and bytes on their way at once


class Publication(NamedTuple):
    """A message on its way to an exchange."""

    exchange: str
    routing_key: str
    properties: Any
    body: bytes
    delay: int = 0  # microseconds before it reaches its queue


def parts_of(publications: Sequence[Publication], indexes: Sequence[int]) -> Iterator[list[int]]:
    """Those of these indexes, cut into parts that are on their way at once."""
    part, size = list[int](), 0
    for index in indexes:
        part.append(index)
        size += len(publications[index].body)
        if len(part) >= WINDOW or size >= BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def unknown(outcomes: Sequence[Outcome | None]) -> str:
    """What an error says of messages whose fate is not known."""
    sure = sum(found == "in" for found in outcomes)
    return f"{sure:,} of {len(outcomes):,} messages are in; the others may come in later, with their ids"


def check_blame(error: Closed, publications: Sequence[Publication], outcomes: Sequence[Outcome | None]) -> None:
    """Raises if the channel was closed for one of these publications, and not for another thread's."""
    if error.code == NOT_FOUND and any(f"'{publication.exchange}'" in error.text for publication in publications):
        raise error
    sizes = {str(len(publication.body)) for publication in publications}
    if error.code == DIFFERENT and sizes & set(error.text.split()):
        raise BadInput("RabbitMQ does not take a message: it is too large", error.text, unknown(outcomes)) from error
