"""The law of a decoder by columns: whatever the messages and however they are cut, it says what the plain one says."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Protocol

from capture_reference import Plain, Said, in_order, said_by
from penstock.capture.postgres.decode.changes import Batch
from penstock.errors import BadMessage


class Decodes(Protocol):
    def decode(self, messages: Sequence[bytes], /) -> Batch: ...


def cut(messages: Sequence[bytes], places: Sequence[int]) -> list[Sequence[bytes]]:
    """The messages in several reads."""
    edges = [0, *sorted(min(place, len(messages)) for place in places), len(messages)]
    return [messages[start:end] for start, end in pairwise(edges)]


def outcome(said: Callable[[], list[Said]]) -> dict[str, list[Said]] | None:
    """What was said; None if the messages cannot be read."""
    try:
        return in_order(said())
    except BadMessage:
        return None


def agrees(decoder: Decodes, messages: Sequence[bytes], places: Sequence[int] = ()) -> bool:
    reads = cut(messages, places)
    by_columns = outcome(lambda: [said for read in reads for said in said_by(decoder.decode(read))])
    return by_columns == outcome(lambda: Plain().decode(messages))
