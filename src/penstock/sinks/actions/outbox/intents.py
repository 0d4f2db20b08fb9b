"""The intents of an outbox, read in its order, some at a time."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from penstock.core.arrow import values_in
from penstock.core.columns import EVENT_TIME, POSITION
from penstock.log.intake.text import encode_json, key_bytes
from penstock.log.port import Topic
from penstock.sinks.actions.keys import idempotency_key
from penstock.sinks.actions.port import Intent
from penstock.sinks.port import SinkSpec

_BLOCK = 500  # rows that are taken out of Arrow at once


class Intents:
    """Reads on from a place in the outbox. A row that was redriven keeps its position, and so its key."""

    def __init__(self, outbox: Topic, spec: SinkSpec, in_order_by: Sequence[str], start: int) -> None:
        self._outbox, self._spec, self._by, self.next = outbox, spec, tuple(in_order_by), start
        self._read: Iterator[Intent] = iter(())

    def more(self) -> Iterator[Intent]:
        """The intents behind the last one that was taken, to the end that the outbox has now."""
        while True:
            for intent in self._read:
                self.next = intent.offset + 1
                yield intent
            end = self._outbox.ends()[0].next
            if self.next >= end:
                return
            self._read, self.next = self._between(self.next, end), end

    def at(self, offsets: Sequence[int]) -> list[Intent]:
        """The intents at these places."""
        return [intent for offset in offsets for intent in self._between(offset, offset + 1)]

    def _between(self, start: int, end: int) -> Iterator[Intent]:
        for chunk in self._outbox.read(0, start, end):
            offsets = chunk.offsets
            for at in range(0, chunk.rows.num_rows, _BLOCK):
                if offsets[min(at + _BLOCK, len(offsets)) - 1] >= start:
                    block = self._block(chunk.rows.slice(at, _BLOCK), offsets[at : at + _BLOCK].tolist())
                    yield from (intent for intent in block if start <= intent.offset < end)

    def _block(self, rows: pa.RecordBatch, offsets: list[int]) -> list[Intent]:
        spec = self._spec
        user = rows.select(spec.schema.names)
        keys: list[bytes | None] = key_bytes(user, spec.key).to_pylist() if spec.key else [None] * len(offsets)
        lanes: list[bytes | None] = key_bytes(user, self._by).to_pylist() if self._by else [None] * len(offsets)
        times = values_in(rows.column(EVENT_TIME).cast(pa.int64()), int)
        columns = zip(
            offsets, keys, values_in(rows.column(POSITION), bytes), user.to_pylist(), encode_json(user), times, lanes, strict=True
        )
        return [
            Intent(offset, idempotency_key(spec.flow, spec.name, key, position), row, json, time, lane)
            for offset, key, position, row, json, time, lane in columns
        ]
