"""What queues do, written down as plainly as it goes: lists that are searched from the first to the last, and a few ifs.

It shares nothing with the rules of the queues but the values that the port speaks in.
"""

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta

from penstock.queue.port import Consumer, Message, QueueSpec, Settlement


def micros(time: timedelta) -> int:
    return time // timedelta(microseconds=1)


@dataclass
class Letter:
    """A message that is not done."""

    message: Message
    sent: int
    due: int
    expires: int | None
    count: int = 0
    holder: str | None = None  # who has it, and under which receipt until when
    receipt: str = ""
    until: int = 0


@dataclass
class Death:
    """What is to be known of a dead letter."""

    message: Message
    queue: str
    reason: str
    count: int


@dataclass
class NaiveQueue:
    spec: QueueSpec
    letters: list[Letter] = field(default_factory=list)  # as they were sent
    deaths: list[Death] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    # What time does

    def notice(self, wall: int, beat: int) -> None:
        for letter in list(self.letters):
            if letter.holder is not None and letter.until <= beat:
                self.back(letter, wall, "its lease ran out")
        for letter in list(self.letters):
            if letter.holder is None and letter.expires is not None and letter.expires <= wall:
                self.die(letter, "nobody took it in time")

    def lose_all(self, wall: int) -> None:
        """Whoever held something is gone."""
        for letter in list(self.letters):
            if letter.holder is not None:
                self.back(letter, wall, "its lease ran out")

    # Who is next

    def free(self) -> list[Letter]:
        return [letter for letter in self.letters if letter.holder is None]

    def ready(self, wall: int) -> list[Letter]:
        """Those that can be lent now, in their order."""
        there = [letter for letter in self.free() if letter.due <= wall and not self.held_up(letter)]
        return sorted(there, key=lambda letter: -letter.message.priority)

    def in_line(self, wall: int) -> list[Letter]:
        """Those that nobody holds: first those that are ready."""
        ready = self.ready(wall)
        others = [letter for letter in self.free() if letter not in ready]
        return ready + sorted(others, key=lambda letter: -letter.message.priority)

    def held_up(self, letter: Letter) -> bool:
        """Whether there is an older one of its key."""
        if not self.spec.ordered or letter.message.key is None:
            return False
        return next(other for other in self.letters if other.message.key == letter.message.key) is not letter

    def next(self, consumer: Consumer, most: int, wall: int) -> list[Letter]:
        held = sum(letter.holder == consumer.name for letter in self.letters)
        return self.ready(wall)[: max(0, min(most, consumer.prefetch - held))]

    # What is done to them

    def lend(self, letter: Letter, consumer: Consumer, receipt: str, beat: int) -> None:
        assert letter.holder is None, f"lent to {letter.holder} and to {consumer.name}"
        letter.holder, letter.receipt = consumer.name, receipt
        letter.until = beat + micros(consumer.lease or self.spec.lease)
        letter.count += 1
        if letter.count > 1:
            self.counts["lent again"] += 1

    def settle(self, settlement: Settlement, wall: int, beat: int) -> bool:
        """Whether it counts."""
        found = [letter for letter in self.letters if letter.holder is not None and letter.receipt == settlement.receipt]
        if not found:
            return False
        if settlement.fate == "ack":
            self.remove(found[0], "acked")
        elif settlement.fate == "reject":
            self.die(found[0], settlement.reason or "it was rejected")
        elif settlement.fate == "extend":
            found[0].until = beat + micros(self.spec.lease if settlement.delay is None else settlement.delay)
        else:
            if not settlement.tried:
                found[0].count -= 1
            rest = self.spec.retry if settlement.delay is None else settlement.delay
            self.back(found[0], wall + micros(rest), settlement.reason or "it was given back")
        return True

    def back(self, letter: Letter, due: int, reason: str) -> None:
        letter.holder = None
        if letter.count >= self.spec.tries:
            self.die(letter, reason)
        else:
            letter.due = due

    def die(self, letter: Letter, reason: str) -> None:
        self.remove(letter, "dead")
        self.deaths.append(Death(letter.message, self.spec.name, reason, letter.count))

    def remove(self, letter: Letter, how: str) -> None:
        self.letters = [other for other in self.letters if other is not letter]
        self.counts[how] += 1

    def purge(self) -> int:
        gone = self.free()
        for letter in gone:
            self.remove(letter, "purged")
        return len(gone)

    # What comes

    def takes(self, message: Message) -> bool:
        return not self.spec.bindings or any(matches(b.route.split("."), message.route.split(".")) for b in self.spec.bindings)

    def fits(self, messages: list[Message], empty: bool = False) -> bool:
        limit, there = self.spec.limit, [] if empty else [letter.message for letter in self.letters]
        if limit.messages is not None and len(there) + len(messages) > limit.messages:
            return False
        return limit.bytes is None or sum(len(m.body) for m in there + messages) <= limit.bytes

    def put(self, messages: list[Message], wall: int) -> None:
        for m in messages:
            self.letters.append(Letter(m, wall, wall + micros(m.delay), None if m.ttl is None else wall + micros(m.ttl)))
        self.counts["sent"] += len(messages)
        while self.spec.limit.policy == "drop-oldest" and not self.fits([]) and self.free():
            self.remove(self.free()[0], "dropped")


def matches(pattern: list[str], words: list[str]) -> bool:
    """Whether a route that is not empty fits, by trying."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(matches(pattern[1:], words[taken:]) for taken in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and matches(pattern[1:], words[1:])


@dataclass
class Sent:
    """What is to be expected of a send: what goes wrong, or which of the messages are dropped at the door."""

    wrong: str = ""
    away: list[Message] = field(default_factory=list)


@dataclass
class NaiveQueues:
    """Queues of one source; the first bears its name."""

    queues: list[NaiveQueue]

    def send(self, messages: list[Message], wall: int, beat: int) -> Sent:
        own = self.queues[0]
        for message in messages:
            if not any(queue.takes(message) for queue in self.queues):
                return Sent("unroutable")
        mine = [message for message in messages if own.takes(message)]
        own.notice(wall, beat)
        if own.spec.limit.policy == "push-back" and not own.fits(mine):
            if not own.fits(mine, empty=True):
                return Sent("too large")
            own.counts["refused"] += len(messages)
            return Sent("full")
        kept = list(messages)
        while own.spec.limit.policy == "drop-newest" and not own.fits([m for m in kept if own.takes(m)]):
            kept.pop()
        away = [message for message in messages[len(kept) :] if own.takes(message)]
        own.counts["sent"] += len(away)
        own.counts["dropped"] += len(away)
        for queue in self.queues:
            queue.notice(wall, beat)
            queue.put([message for message in messages if message not in away and queue.takes(message)], wall)
        return Sent(away=away)
