"""What a queue's limit leaves room for."""

import bisect
import itertools
from collections.abc import Collection, Sequence

from penstock.queue.book import Book
from penstock.queue.port import Message, QueueSpec
from penstock.queue.routing import takes

_EMPTY = Book()


def room_for(spec: QueueSpec, messages: Sequence[Message], book: Book = _EMPTY) -> bool:
    """Whether a queue has room for the messages beside those in its book."""
    most, size = spec.limit.messages, spec.limit.bytes
    mine = [message for _, message in _taken(spec, messages)]
    if most is not None and len(book.items) + len(mine) > most:
        return False
    return size is None or book.bytes + sum(len(m.body) for m in mine) <= size


def too_many(spec: QueueSpec, messages: Sequence[Message], book: Book) -> Collection[int]:
    """Of messages that are sent, the positions of those that are too many for a queue: the newest."""
    mine = _taken(spec, messages)
    most = len(mine) if spec.limit.messages is None else max(0, spec.limit.messages - len(book.items))
    if spec.limit.bytes is not None:
        sizes = list(itertools.accumulate(len(m.body) for _, m in mine))
        most = min(most, bisect.bisect_right(sizes, spec.limit.bytes - book.bytes))
    return {i for i, _ in mine[most:]}


def _taken(spec: QueueSpec, messages: Sequence[Message]) -> list[tuple[int, Message]]:
    return [(i, m) for i, m in enumerate(messages) if takes(spec.bindings, m.route, m.headers, spec.name)]
