"""What became of intents, noted durably in a topic beside the outbox.

Each row also says up to where all intents are settled, and from where on the topic must be read to know the rest: a start
reads the end of the topic alone, however long it is.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from penstock.core.arrow import batch_of
from penstock.core.schema import Schema
from penstock.errors import AlreadyThere, Fenced, Mismatch, NotFound
from penstock.log.port import Log, Sender, Topic, TopicSpec

Fate = Literal["done", "failed", "dead"]
SCHEMA = Schema.of(
    "intent long not null, key string not null, outcome string not null, tries int not null, reason string, "
    "outbox string not null, batch long not null, settled long not null, since long not null"
)


class Outcome(NamedTuple):
    """Of one try: done, failed (it is tried again) or dead."""

    intent: int
    key: str
    fate: Fate
    tries: int
    reason: str | None = None


@dataclass
class Known:
    """What the topic says of intents that are not behind `settled`."""

    settled: int = 0  # all intents before this offset have a final outcome
    batch: int = 0  # of the last rows
    final: set[int] = field(default_factory=set)
    tries: dict[int, int] = field(default_factory=dict)
    noted: dict[int, int] = field(default_factory=dict)  # intent -> where its last row stands in the topic
    last: list[Outcome] = field(default_factory=list)  # of the last batch


class Outcomes:
    """One writer at a time: a later generation fences earlier ones off before it reads."""

    def __init__(self, log: Log, name: str, flow: str, outbox: Topic) -> None:
        self._topic = _topic(log, name, flow)
        self._name, self._flow, self._outbox = name, flow, outbox.id
        self._sender = Sender("", 0, 0)
        self.known = Known()

    def open(self, incarnation: str, generation: int) -> None:
        """Fences earlier generations off, and reads what is there; Mismatch if a later one has written."""
        id = f"{self._flow}/{self._name}/{incarnation}"
        last = self._topic.senders(0).get(id)
        self._sender = Sender(id, generation, last.sequence + 1 if last and last.epoch == generation else 0)
        try:
            self._topic.append(0, _rows([]), sender=self._sender)
        except Fenced as error:
            what = f"topic {self._name!r} is written by a later start of flow {self._flow!r}"
            raise Mismatch(what, hint="another driver has taken over; stop this one") from error
        self.known = self._read()

    def replaced(self) -> bool:
        """Whether a later generation writes here now."""
        last = self._topic.senders(0).get(self._sender.id)
        return last is not None and last.epoch > self._sender.epoch

    def note(self, outcomes: Sequence[Outcome], oldest: int) -> None:
        """Appends them in one frame; Fenced if this generation was replaced. oldest: the first intent without a final outcome,
        once these are noted. May be called again with the same if it failed."""
        known, base = self.known, self._topic.ends()[0].next
        noted = known.noted | dict.fromkeys([outcome.intent for outcome in outcomes], base)
        noted = {intent: at for intent, at in noted.items() if intent >= oldest}
        since = min(noted.values(), default=base)
        rows = [_row(o, self._outbox, known.batch + 1, oldest, min(since, base)) for o in outcomes]
        sender = self._sender._replace(sequence=self._sender.sequence + 1)
        self._topic.append(0, _rows(rows), sender=sender)
        self._sender, known.settled, known.noted, known.batch = sender, oldest, noted, known.batch + 1

    def _read(self) -> Known:
        last = self._last_row()
        if last is None or last["outbox"] != self._outbox:  # an outbox that was made anew starts over
            return Known(batch=last["batch"] if last else 0)
        known = Known(last["settled"], last["batch"])
        for offset, row in self._rows_from(last["since"]):
            if row["outbox"] != self._outbox:
                continue
            if row["batch"] == known.batch:
                known.last.append(Outcome(row["intent"], row["key"], row["outcome"], row["tries"], row["reason"]))
            if row["intent"] >= known.settled:
                _take(known, offset, row)
        return known

    def _last_row(self) -> dict[str, Any] | None:
        """Offsets at the end may hold none, for a broker uses some itself: so it looks back further and further."""
        end, back = self._topic.ends()[0], 1
        while back < 2 * (end.next - end.first):
            rows = [row for _, row in self._rows_from(end.next - back)]
            if rows:
                return rows[-1]
            back *= 2
        return None

    def _rows_from(self, start: int) -> Iterator[tuple[int, dict[str, Any]]]:
        for chunk in self._topic.read(0, max(start, self._topic.ends()[0].first)):
            yield from zip(chunk.offsets.tolist(), chunk.rows.to_pylist(), strict=True)


def _take(known: Known, offset: int, row: dict[str, Any]) -> None:
    intent = row["intent"]
    known.noted[intent] = offset
    if row["outcome"] == "failed":
        known.tries[intent] = row["tries"]
    else:
        known.final.add(intent)


def _row(outcome: Outcome, outbox: str, batch: int, settled: int, since: int) -> dict[str, Any]:
    intent, key, fate, tries, reason = outcome
    values = (intent, key, fate, tries, reason, outbox, batch, settled, since)
    return dict(zip(SCHEMA.names, values, strict=True))


def _rows(rows: Iterable[dict[str, Any]]) -> pa.RecordBatch:
    found = list(rows)
    return batch_of({f.name: pa.array([row[f.name] for row in found], f.type) for f in SCHEMA.arrow})


def _topic(log: Log, name: str, flow: str) -> Topic:
    try:
        topic = log.topic(name)
    except NotFound:
        try:
            topic = log.create(TopicSpec(name, 1, SCHEMA, writer=flow))
        except AlreadyThere:  # another driver was quicker
            topic = log.topic(name)
    if topic.spec.writer != flow or topic.spec.schema != SCHEMA:
        raise Mismatch(
            f"flow {flow!r} cannot note the outcomes of its actions in topic {name!r}: it is not its own",
            hint="give the sink another name: .sink(…, name=…)",
        )
    return topic
