"""Intents that were given up, as dead letters of the flow. A letter names the intent in the outbox, which a redrive sends again."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.core.arrow import batch_of
from penstock.core.columns import EVENT_TIME, POSITION, WATERMARK
from penstock.core.position import Position
from penstock.core.schema import TIMESTAMP
from penstock.errors import NotFound
from penstock.log.port import Log, Sender
from penstock.sinks.actions.port import Intent
from penstock.sinks.letters import dead_schema, dead_topic
from penstock.sinks.port import SinkSpec
from penstock.sinks.topic_owner import owned_topic

_LONGEST, _LONGEST_REASON = 1 << 17, 10_000  # characters of a row and of a reason: the topic takes records of 1 MB


class DeadLetters:
    """Writes each batch of letters once: its number is the producer's. The topic is made when the first letter needs it."""

    def __init__(self, log: Log, spec: SinkSpec, outbox: str, called: str) -> None:
        self._log, self._spec, self._outbox, self._called = log, spec, outbox, called
        self._sender = Sender("", 0, 0, gaps=True)

    def open(self, incarnation: str, generation: int) -> None:
        self._sender = Sender(f"{self._spec.flow}/{self._spec.name}.letters/{incarnation}", generation, 0, gaps=True)

    def lacks(self, batch: int) -> bool:
        """Whether the letters of this batch, the last one, are not there yet."""
        try:
            last = self._log.topic(dead_topic(self._spec.flow)).senders(0).get(self._sender.id)
        except NotFound:
            return True
        return last is None or last.sequence < batch

    def write(self, batch: int, given_up: Sequence[tuple[Intent, str]]) -> None:
        name = dead_topic(self._spec.flow)
        topic = owned_topic(self._log, SinkSpec(self._spec.flow, name, dead_schema(), ()), name, 1, ())
        topic.append(0, self._rows(given_up), sender=self._sender._replace(sequence=batch))

    def _rows(self, given_up: Sequence[tuple[Intent, str]]) -> pa.RecordBatch:
        rows = [self._row(intent, reason) for intent, reason in given_up]
        columns: dict[str, pa.Array] = {f.name: pa.array([row[f.name] for row in rows], f.type) for f in dead_schema()}
        columns[EVENT_TIME] = pa.array([intent.time for intent, _ in given_up], pa.int64()).cast(TIMESTAMP)
        places = [Position(self._outbox, 0, intent.offset).encode() for intent, _ in given_up]
        columns |= {POSITION: pa.array(places, pa.binary()), WATERMARK: pa.nulls(len(rows), pa.int64())}
        return batch_of(columns)

    def _row(self, intent: Intent, reason: str) -> dict[str, Any]:
        return {
            "step": self._spec.name,
            "reason": reason[:_LONGEST_REASON],
            "topic": self._outbox,
            "partition": 0,
            "offset": intent.offset,
            "time": intent.time,
            "watermark": None,
            "row": intent.json.decode()[:_LONGEST],
            "expression": self._called,
        }
