"""Where a record is: in the log, in an epoch of a flow, in the flow's own topics for late and dead rows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.arrow import filled, values_in
from penstock.core.columns import KEY, OP, VALUE
from penstock.core.position import Position
from penstock.core.time import text
from penstock.engine.execute.program import DEAD, LATE
from penstock.engine.run.epoch.decision import Decisions
from penstock.engine.run.letters import letter_topic
from penstock.errors import NotFound
from penstock.log.intake.codec import encode_json
from penstock.log.intake.deletes import DELETE
from penstock.log.intake.stored_rows import deletes_of
from penstock.log.port import End, Log, Topic


@dataclass(frozen=True)
class Event:
    """What one step did with the record."""

    step: str
    fate: str
    text: str
    changes: tuple[str, ...] = ()  # settings that would have changed it
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Story:
    """The record in one flow."""

    flow: str
    read: bool
    events: tuple[Event, ...]
    note: str | None = None


def find(topic: Topic, where: Position) -> tuple[dict[str, Any], int]:
    """The record as the log holds it, and its append time; NotFound where it is not there."""
    ends = topic.ends()
    if where.partition not in ends:
        raise NotFound(f"topic {where.topic} has no partition {where.partition}", f"it has {len(ends)}, counted from 0")
    end = ends[where.partition]
    if not 0 <= where.offset < end.next:
        last = f"its last record is {where.topic}/{where.partition}@{end.next - 1}" if end.next else "the partition is empty"
        raise NotFound(f"there is no record {where} yet", last)
    if where.offset < end.first:
        raise _removed(where, end)
    for chunk in topic.read(where.partition, where.offset, where.offset + 1):
        at = int(np.searchsorted(chunk.offsets, where.offset))
        if at < chunk.rows.num_rows and chunk.offsets[at] == where.offset:
            return _shown(topic, chunk.rows.slice(at, 1)), int(chunk.appended[at])
    raise _removed(where, end)


def _removed(where: Position, end: End) -> NotFound:
    return NotFound(f"record {where} is not in the log any more", f"the oldest one still there is {end.first}")


def _shown(topic: Topic, row: pa.RecordBatch) -> dict[str, Any]:
    """The columns of a row as JSON has them; of a raw topic its text."""
    gone = {OP: DELETE} if deletes_of(row, topic.spec.schema is None) is not None else {}
    if topic.spec.schema is None:
        name = KEY if gone else VALUE
        shown = row.column(name)[0].as_py() if name in row.schema.names else None
        return {name: (shown or b"").decode("utf-8", "backslashreplace")} | gone
    columns: dict[str, Any] = orjson.loads(encode_json(pa.Table.from_batches([row]).select(topic.spec.schema.names))[0])
    return columns | gone


def reads(decisions: Decisions, topic: Topic) -> list[str]:
    """The streams of a flow over a topic, by what it has decided."""
    last = decisions.last()
    return [name for name, source in last.sources.items() if source.topic_id == topic.id] if last else []


def epoch_text(decisions: Decisions, source: str, where: Position) -> str | None:
    """In which epoch the record was read; None: not yet."""
    epochs = decisions.epochs()
    for epoch in epochs:
        decision = decisions.read(epoch)
        start, stop = decision.ranges.get(source, {}).get(where.partition, (0, 0))
        if start <= where.offset < stop:
            return f"read in epoch {epoch}, opened {text(decision.clock)}"
    state = decisions.read(epochs[-1]).sources.get(source) if epochs else None
    known = state.partitions.get(where.partition) if state else None
    return f"read before epoch {epochs[0]}, the oldest that is kept" if known and where.offset < known.next else None


def letters(log: Log, flow: str, kind: str, where: Position) -> Iterator[dict[str, Any]]:
    """What the flow's own topic for late or dead rows says of the record, with the place of each letter as `letter`."""
    name = letter_topic(flow, kind)
    if name not in log.topics():
        return
    topic = log.topic(name)
    for partition, end in topic.ends().items():
        for chunk in topic.read(partition, end.first):
            rows = chunk.rows
            same = pc.and_(pc.equal(rows["topic"], pa.scalar(where.topic)), pc.equal(rows["partition"], pa.scalar(where.partition)))
            same = pc.and_(same, pc.equal(rows["offset"], pa.scalar(where.offset)))
            for i in values_in(pc.indices_nonzero(filled(same, False)), int):
                yield rows.slice(i, 1).to_pylist()[0] | {"letter": str(Position(name, partition, int(chunk.offsets[i])))}


def told_by_letters(log: Log, decisions: Decisions, topic: Topic, where: Position) -> Story:
    """What is known of the record without the flow's program."""
    events = []
    for source in reads(decisions, topic):
        epoch = epoch_text(decisions, source, where)
        events.append(Event(source, "read" if epoch else "not read", epoch or unread(decisions, source, where)))
    for kind in (DEAD, LATE):
        for letter in letters(log, decisions.flow, kind, where):
            late = f": its time was {_at(letter['time'])}, the watermark {_at(letter['watermark'])}" if kind == LATE else ""
            fate = "diverted" if kind == LATE else "dead"
            events.append(Event(letter["step"], fate, f"{letter['reason']}{late} → {letter['letter']}"))
    return Story(decisions.flow, any(e.fate == "read" for e in events), tuple(events))


def _at(time: Any) -> str:
    return "none" if time is None else time.isoformat().replace("+00:00", "Z")


def unread(decisions: Decisions, source: str, where: Position) -> str:
    last = decisions.last()
    known = last.sources[source].partitions.get(where.partition) if last and source in last.sources else None
    return f"not yet read: the flow has come to offset {known.next if known else 0}"
