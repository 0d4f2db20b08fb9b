"""A topic, read as a queue: how far it was looked through, and the book of the messages that are not done."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.queue.on_log import commands
from penstock.queue.on_log.commands import Event
from penstock.queue.state.machine import Book, Item
from penstock.queue.state.snapshot import restored, taken

_OFFSETS = 48  # bits of a place that are the offset; those above are the partition


def place_of(partition: int, offset: int) -> int:
    return partition << _OFFSETS | offset


def where(place: int) -> tuple[int, int]:
    """Partition and offset."""
    return place >> _OFFSETS, place & (1 << _OFFSETS) - 1


class Seen(NamedTuple):
    """Records of a topic that were looked at: those that are messages of this queue, and where the next one stands."""

    partition: int
    next: int
    items: Sequence[Item]


@dataclass
class Share:
    """What a queue on the log has to remember."""

    book: Book
    topic_id: str
    next: dict[int, int] = field(default_factory=dict)  # by partition: the first record that was not looked at
    burials: dict[int, int] = field(default_factory=dict)  # by place: the number under which it goes to the dead letters
    buried: int = 0  # the last of those numbers

    def admit(self, seen: Seen) -> Event:
        self.book.admit(seen.items)
        self.next[seen.partition] = seen.next
        return ["in", seen.partition, seen.next, [_said(item) for item in seen.items]]

    def bury(self, place: int) -> Event:
        """Gives a message that has to leave its number among the dead letters."""
        self.buried += 1
        self.burials[place] = self.buried
        return ["bury", place, self.buried, self.book.leaving[place]]

    def rest(self, place: int) -> Event:
        """It is among the dead letters."""
        del self.burials[place]
        [event] = commands.finish(self.book, [self.book.items[place]], "dead")
        return ["rest", place, event]

    def skip(self, partition: int, next: int, count: int) -> Event:
        """Passes records over without a look."""
        self.next[partition] = next
        self.book.counts.update(sent=count, purged=count)
        return ["skip", partition, next, count]

    def told(self, event: Event) -> None:
        """Does again what an event says."""
        kind = event[0]
        if kind == "in":
            _, partition, next, said = event
            self.book.admit([_item(partition, one) for one in said])
            self.next[partition] = next
        elif kind == "bury":
            _, place, self.buried, reason = event
            self.book.set_aside(self.book.items[place], reason)
            self.burials[place] = self.buried
        elif kind == "rest":
            del self.burials[event[1]]
            commands.told(self.book, event[2])
        elif kind == "skip":
            self.skip(*event[1:])
        else:
            commands.told(self.book, event)

    def sum(self) -> Event:
        """All of it, as one event."""
        said = {
            "book": taken(self.book),
            "topic": self.topic_id,
            "next": [[p, n] for p, n in self.next.items()],
            "burials": [[place, number] for place, number in self.burials.items()],
            "buried": self.buried,
        }
        return ["all", said]

    @staticmethod
    def of(event: Event) -> "Share":
        said: Mapping[str, Any] = event[1]
        return Share(
            restored(said["book"]),
            said["topic"],
            dict(said["next"]),
            dict(said["burials"]),
            said["buried"],
        )


def _said(item: Item) -> list[Any]:
    """What is remembered of a message: offset and size, when it was sent, and the rest only where there is any."""
    plain = [where(item.place)[1], item.size, item.sent]
    return (
        [*plain, item.priority, item.due, item.expires, item.key]
        if item.priority or item.due or item.expires or item.key
        else plain
    )


def _item(partition: int, said: list[Any]) -> Item:
    return Item(place_of(partition, said[0]), *said[1:])
