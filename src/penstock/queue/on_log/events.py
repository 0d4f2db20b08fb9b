"""What happened to a queue on the log, beside what happens to the messages of every queue."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.queue.on_log.journal import DELETED
from penstock.queue.on_log.position import OFFSET, position_of
from penstock.queue.on_log.state import LogQueueState
from penstock.queue.state import events
from penstock.queue.state.events import Encoded, Event, Finished
from penstock.queue.state.item import Item
from penstock.queue.state.snapshot import restored, snapshot

Row = list[Any]  # of a message: offset, size, sent; and priority, due, expires and key where it has any of them


@dataclass(frozen=True, slots=True)
class Admitted:
    """Records of a partition were read; those that are messages for this queue are in it."""

    kind: ClassVar = "in"
    partition: int
    next: int
    rows: Sequence[Row]

    def encode(self) -> Encoded:
        return [self.kind, self.partition, self.next, self.rows]

    def apply(self, state: LogQueueState) -> None:
        state.machine.admit([Item(position_of(self.partition, offset), *fields) for offset, *fields in self.rows])
        state.next[self.partition] = self.next


@dataclass(frozen=True, slots=True)
class Skipped:
    """Records of a partition were passed over unread; count: the messages among them."""

    kind: ClassVar = "skip"
    partition: int
    next: int
    count: int

    def encode(self) -> Encoded:
        return [self.kind, self.partition, self.next, self.count]

    def apply(self, state: LogQueueState) -> None:
        state.next[self.partition] = self.next
        state.machine.counts.update(sent=self.count, purged=self.count)


@dataclass(frozen=True, slots=True)
class DeadLetterNumbered:
    """A dying message has the number under which it is stored among the dead letters."""

    kind: ClassVar = "bury"
    position: int
    number: int
    reason: str

    def encode(self) -> Encoded:
        return [self.kind, self.position, self.number, self.reason]

    def apply(self, state: LogQueueState) -> None:
        state.machine.reject(state.machine.items[self.position], self.reason)
        state.dead_letter = state.dead_letters[self.position] = self.number


@dataclass(frozen=True, slots=True)
class DeadLetterStored:
    """A message is among the dead letters, and gone from here."""

    kind: ClassVar = "rest"
    position: int

    def encode(self) -> Encoded:
        return [self.kind, self.position, self._finished.encode()]

    def apply(self, state: LogQueueState) -> None:
        del state.dead_letters[self.position]
        self._finished.apply(state.machine)

    @property
    def _finished(self) -> Finished:
        return Finished("dead", [self.position])


@dataclass(frozen=True, slots=True)
class Deleted:
    """The queue is gone; whoever reads this finds no queue any more."""

    def encode(self) -> Encoded:
        return [DELETED]

    def apply(self, state: LogQueueState) -> None:
        pass


LogEvent = Admitted | Skipped | DeadLetterNumbered | DeadLetterStored | Deleted
AnyEvent = LogEvent | Event


def admitted(partition: int, next: int, items: Sequence[Item]) -> Admitted:
    rows = list[Row]()
    for item in items:
        row: Row = [item.position & OFFSET, item.size, item.sent]
        if item.priority or item.due or item.expires or item.key:
            row += [item.priority, item.due, item.expires, item.key]
        rows.append(row)
    return Admitted(partition, next, rows)


def apply(encoded: Encoded, state: LogQueueState) -> None:
    """Does again what was done when the event happened."""
    kind, *fields = encoded
    if kind == Admitted.kind:
        Admitted(*fields).apply(state)
    elif kind == Skipped.kind:
        Skipped(*fields).apply(state)
    elif kind == DeadLetterNumbered.kind:
        DeadLetterNumbered(*fields).apply(state)
    elif kind == DeadLetterStored.kind:
        DeadLetterStored(fields[0]).apply(state)
    else:
        events.decode(encoded).apply(state.machine)


SNAPSHOT = "all"  # the kind of the first event of a journal


def encode_snapshot(state: LogQueueState) -> Encoded:
    data = {
        "book": snapshot(state.machine),
        "topic": state.topic_id,
        "next": list(map(list, state.next.items())),
        "burials": list(map(list, state.dead_letters.items())),
        "buried": state.dead_letter,
    }
    return [SNAPSHOT, data]


def decode_snapshot(encoded: Encoded) -> LogQueueState:
    data = encoded[1]
    return LogQueueState(restored(data["book"]), data["topic"], dict(data["next"]), dict(data["burials"]), data["buried"])
