"""The messages of a topic, for one queue: the next ones, and any by their position; those read of late are in a cache."""

import threading
from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from penstock.log.intake.stored_rows import deletes_of
from penstock.log.port import Chunk, Topic
from penstock.queue.on_log.position import partition_and_offset, position_of
from penstock.queue.on_log.records import decode_messages
from penstock.queue.on_log.state import ReadMessages
from penstock.queue.port import Message, QueueSpec
from penstock.queue.state.item import AT_ONCE, FOREVER, Item
from penstock.queue.state.routing import takes

_CACHED_BYTES, _CACHED_MESSAGES = 32 << 20, 10_000


class TopicMessages:
    def __init__(self, topic: Topic, spec: QueueSpec) -> None:
        self._topic, self._spec, self._guard = topic, spec, threading.Lock()
        self._cache: dict[int, Message] = {}  # by position, the oldest first
        self._bytes = 0
        self._chunks: dict[int, Chunk] = {}  # by partition: a frame that was read in part

    def read(self, partition: int, start: int, most: int) -> ReadMessages:
        """The next records of a partition, at most so many, and those of them that this queue takes."""
        items, end = list[Item](), start
        with self._guard:
            for chunk in self._from(partition, start):
                offsets = chunk.offsets
                first = int(np.searchsorted(offsets, end))
                numbers = offsets[first : first + most].tolist()
                items += self._items(chunk, partition, first, numbers)
                most -= len(numbers)
                if first + len(numbers) < len(offsets):
                    self._chunks[partition] = chunk
                    return ReadMessages(partition, numbers[-1] + 1, items, at_end=False)
                end = chunk.frame.end
                if not most:
                    break
            self._chunks.pop(partition, None)
            return ReadMessages(partition, end, items, at_end=most > 0)

    def messages(self, positions: Sequence[int]) -> dict[int, Message]:
        """The messages at these positions."""
        with self._guard:
            found = {position: self._cache[position] for position in positions if position in self._cache}
        if len(found) < len(positions):
            missing = sorted(map(partition_and_offset, set(positions) - found.keys()))
            for partition, group in groupby(missing, lambda at: at[0]):
                found.update(self._read_at(partition, [offset for _, offset in group]))
        return found

    def _from(self, partition: int, start: int) -> Iterator[Chunk]:
        kept = self._chunks.get(partition)
        if kept and kept.frame.base <= start < kept.frame.end:
            yield kept
            start = kept.frame.end
        yield from self._topic.read(partition, start)

    def _items(self, chunk: Chunk, partition: int, first: int, offsets: Sequence[int]) -> Iterator[Item]:
        rows, spec = chunk.rows.slice(first, len(offsets)), self._topic.spec
        sent = chunk.appended[first : first + len(offsets)].tolist()
        deleted = deletes_of(rows, spec.schema is None)
        for i, (message, size, header) in enumerate(decode_messages(spec, partition, offsets, rows)):
            if (deleted is not None and deleted[i]) or not takes(
                self._spec.bindings, message.route, message.headers, self._spec.name
            ):
                continue  # a delete is no message
            position = position_of(partition, offsets[i])
            self._cache_message(position, message)
            due, expires = header.get("due", AT_ONCE), header.get("expires", FOREVER)
            yield Item(position, size, sent[i], message.priority, due, expires, message.key)

    def _cache_message(self, position: int, message: Message) -> None:
        self._cache[position] = message
        self._bytes += len(message.body)
        while self._bytes > _CACHED_BYTES or len(self._cache) > _CACHED_MESSAGES:
            self._bytes -= len(self._cache.pop(next(iter(self._cache))).body)

    def _read_at(self, partition: int, offsets: Sequence[int]) -> Iterator[tuple[int, Message]]:
        for chunk in self._topic.read(partition, offsets[0], offsets[-1] + 1):
            here = [offset for offset in offsets if chunk.frame.base <= offset < chunk.frame.end]
            rows = chunk.rows.take(np.searchsorted(chunk.offsets, here)) if len(here) < chunk.frame.count else chunk.rows
            for offset, record in zip(here, decode_messages(self._topic.spec, partition, here, rows), strict=True):
                yield position_of(partition, offset), record.message
