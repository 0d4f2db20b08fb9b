"""Messages on their way to an exchange, and what becomes of them."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from penstock.errors import BadInput
from penstock.queue.rabbitmq.amqp.channel import DIFFERENT, NOT_FOUND, Closed

Outcome = Literal["in", "refused", "returned"]
WINDOW, BYTES = 1_000, 4 << 20  # messages and bytes on their way at once


class Parcel(NamedTuple):
    """A message on its way to an exchange."""

    exchange: str
    routing_key: str
    properties: Any
    body: bytes
    rest: int = 0  # microseconds before it goes on


def parts_of(parcels: Sequence[Parcel], indexes: Sequence[int]) -> Iterator[list[int]]:
    """Those of these indexes, cut into parts that are on their way at once."""
    part, size = list[int](), 0
    for index in indexes:
        part.append(index)
        size += len(parcels[index].body)
        if len(part) >= WINDOW or size >= BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def unknown(outcomes: Sequence[Outcome | None]) -> str:
    """What is to be told of messages whose fate is not known."""
    sure = sum(found == "in" for found in outcomes)
    return f"{sure:,} of {len(outcomes):,} messages are in; the others may come in later, with their ids"


def check_blame(error: Closed, parcels: Sequence[Parcel], outcomes: Sequence[Outcome | None]) -> None:
    """Raises if the channel was closed for one of these parcels, and not for another thread's."""
    if error.code == NOT_FOUND and any(f"'{parcel.exchange}'" in error.text for parcel in parcels):
        raise error
    sizes = {str(len(parcel.body)) for parcel in parcels}
    if error.code == DIFFERENT and sizes & set(error.text.split()):
        raise BadInput("RabbitMQ does not take a message: it is too large", error.text, unknown(outcomes)) from error
