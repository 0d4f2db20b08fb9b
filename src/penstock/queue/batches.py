"""Cuts many messages into batches that are sent at once."""

from collections.abc import Iterable, Iterator

from penstock.queue.port import Message

MESSAGES, BYTES = 1_000, 4 << 20


def batches(messages: Iterable[Message], most: int = MESSAGES, most_bytes: int = BYTES) -> Iterator[list[Message]]:
    batch, size = list[Message](), 0
    for message in messages:
        if batch and (len(batch) >= most or size + len(message.body) > most_bytes):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += len(message.body)
    if batch:
        yield batch
