"""Who holds which message: the rules of a queue, the same for every broker that we keep ourselves.

A book knows the messages that are not done, by their places; what they say is kept elsewhere. What it does depends on nothing but
what it is told, so a book that is told the same again is the same again.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import NamedTuple

READY, RESTING, BLOCKED, LENT, LEAVING, GONE = range(6)  # can be lent; until its time; behind one of its key; to the dead letters
AT_ONCE = FOREVER = 0  # no time to rest until; no time to expire at
RAN_OUT, EXPIRED = "its lease ran out", "nobody took it in time"


class Item:
    """A message that is not done."""

    __slots__ = (
        "consumer",
        "count",
        "due",
        "expires",
        "key",
        "number",
        "place",
        "priority",
        "sent",
        "size",
        "token",
        "until",
        "where",
    )
    number: int  # how many came before it; given when it is admitted
    consumer: str  # who holds it, or held it last; and until when, under which token
    token: int
    until: int

    def __init__(
        self,
        place: int,
        size: int,
        sent: int,
        priority: int = 0,
        due: int = AT_ONCE,
        expires: int = FOREVER,
        key: str | None = None,
    ) -> None:
        self.place = place
        self.size = size
        self.sent = sent
        self.priority = priority
        self.due = due
        self.expires = expires
        self.key = key
        self.count = 0
        self.where = READY

    def __lt__(self, other: "Item") -> bool:
        return self.number < other.number


class Now(NamedTuple):
    """A moment, by two clocks."""

    boot: str  # leases end with the boot that they were given in
    beat: int  # microseconds of this boot: what leases are measured with
    wall: int  # microseconds: what delays and expiries are measured with


class Book:
    """The messages of one queue that are not done."""

    def __init__(self, ordered: bool = False, tries: int = 5) -> None:
        self.ordered, self.tries = ordered, tries
        self.items: dict[int, Item] = {}  # by place, in the order they came
        self.leaving: dict[int, str] = {}  # those that have to go to the dead letters, and why
        self.counts: Counter[str] = Counter()
        self.held: Counter[str] = Counter()  # messages that each consumer holds
        self.bytes = self.ready = 0
        self.token = self.number = 0  # of the last lending, of the last message that came
        self.boot = ""
        self._fresh: deque[Item] = deque()  # priority 0, as they came
        self._line: list[tuple[int, int, Item]] = []  # the others: -priority, number
        self._resting: list[tuple[int, int, Item]] = []  # due, number
        self._leases: list[tuple[int, int, list[Item]]] = []  # until, token
        self._expiring: list[tuple[int, int, Item]] = []  # expires, number
        self._chains: dict[str, deque[Item]] = {}  # ordered: the messages of a key

    # What comes, and what goes

    def admit(self, items: Iterable[Item]) -> None:
        """They stand at the end now."""
        number = self.number
        for item in items:
            number += 1
            item.number = number
            self.items[item.place] = item
            self.bytes += item.size
            if item.expires:
                heappush(self._expiring, (item.expires, number, item))
            if self.ordered and item.key is not None:
                self._line_up(item, item.key)
            elif item.due or item.priority:
                self._come_forward(item)
            else:
                self.ready += 1
                self._fresh.append(item)
        self.number = number

    def lend(self, items: list[Item], consumer: str, token: int, until: int) -> None:
        for item in items:
            self._leave(item)
            item.where = LENT
            item.consumer = consumer
            item.token = token
            item.until = until
            item.count += 1
            if item.count > 1:
                self.counts["lent again"] += 1
        self.held[consumer] += len(items)
        self.token = max(self.token, token)
        heappush(self._leases, (until, token, items))

    def extend(self, item: Item, until: int) -> None:
        item.until = until
        heappush(self._leases, (until, item.token, [item]))

    def give_back(self, item: Item, due: int, reason: str) -> None:
        """It is lent again when its time has come, in its old place, unless it was lent often enough."""
        self._leave(item)
        if item.count >= self.tries:
            item.where = LEAVING
            self.leaving[item.place] = reason
            return
        item.due = due
        if item.expires:
            heappush(self._expiring, (item.expires, item.number, item))
        self._come_forward(item)

    def set_aside(self, item: Item, reason: str) -> None:
        """It goes to the dead letters: nobody gets it any more."""
        self._leave(item)
        item.where = LEAVING
        self.leaving[item.place] = reason

    def finish(self, item: Item, how: str) -> None:
        """It is done; the next of its key comes forward."""
        self._leave(item)
        item.where = GONE
        del self.items[item.place]
        self.bytes -= item.size
        self.counts[how] += 1
        if self.ordered and item.key is not None:
            self._unblock(item, item.key)

    # Who is next

    def take(self, consumer: str, most: int, until: int) -> list[Item]:
        """Lends the next messages: the highest priority first, and then the oldest."""
        fresh, line, taken = self._fresh, self._line, list[Item]()
        while len(taken) < most:
            self.trim()
            if line and (not fresh or line[0][0] < 0 or line[0][1] < fresh[0].number):
                item = heappop(line)[2]
            elif fresh:
                item = fresh.popleft()
            else:
                break
            self.ready -= 1
            item.where = GONE  # in nobody's hands for the moment: it may stand in line twice
            taken.append(item)
        if taken:
            self.lend(taken, consumer, self.token + 1, until)
        return taken

    def in_line(self) -> Iterator[Item]:
        """Those that nobody holds, in the order that they would be lent."""
        there = [item for item in self.items.values() if item.where in (READY, RESTING, BLOCKED)]
        return iter(sorted(there, key=lambda item: (item.where != READY, -item.priority, item.number)))

    def of_receipt(self, place: int, token: int, now: Now) -> Item | None:
        """The message that is lent under this token, if the lease still runs."""
        item = self.items.get(place)
        if item is None or item.where != LENT or item.token != token or self.boot != now.boot or item.until <= now.beat:
            return None
        return item

    # What time does

    def wake(self, now: Now) -> None:
        """Those whose time has come are ready, those whose lease ran out are given back, those that expired have to leave."""
        if now.boot != self.boot:
            self.restart(now.boot)
        while self._resting and self._resting[0][0] <= now.wall:
            due, _, item = heappop(self._resting)
            if item.where == RESTING and item.due == due:
                item.due = AT_ONCE
                self._come_forward(item)
        while self._leases and self._leases[0][0] <= now.beat:
            until, token, items = heappop(self._leases)
            for item in items:
                if item.where == LENT and item.token == token and item.until == until:
                    self.give_back(item, AT_ONCE, RAN_OUT)
        while self._expiring and self._expiring[0][0] <= now.wall:
            item = heappop(self._expiring)[2]
            if item.where in (READY, RESTING, BLOCKED):
                self.set_aside(item, EXPIRED)

    def restart(self, boot: str) -> None:
        """The machine was started anew: nobody holds anything any more."""
        self.boot = boot
        for item in [item for item in self.items.values() if item.where == LENT]:
            self.give_back(item, AT_ONCE, RAN_OUT)
        self._leases.clear()

    def next_change(self) -> tuple[int | None, int | None]:
        """When there may be more to lend although nothing comes: by the wall's clock, and by that of leases."""
        return (self._resting[0][0] if self._resting else None), (self._leases[0][0] if self._leases else None)

    def put_down(self, items: Iterable[Item]) -> None:
        """Items that know already where they are: those of a book that was kept elsewhere, in the order they came."""
        for item in items:
            self.items[item.place] = item
            self.bytes += item.size
            if item.expires:
                heappush(self._expiring, (item.expires, item.number, item))
            if self.ordered and item.key is not None:
                self._chains.setdefault(item.key, deque()).append(item)
            if item.where in (READY, RESTING):
                self._come_forward(item)
            elif item.where == LENT:
                self.held[item.consumer] += 1
                heappush(self._leases, (item.until, item.token, [item]))

    # Inside

    def _leave(self, item: Item) -> None:
        if item.where == READY:
            self.ready -= 1
        elif item.where == LENT:
            self.held[item.consumer] -= 1
            if not self.held[item.consumer]:
                del self.held[item.consumer]
        elif item.where == LEAVING:
            self.leaving.pop(item.place, None)

    def _come_forward(self, item: Item) -> None:
        if item.due:
            item.where = RESTING
            heappush(self._resting, (item.due, item.number, item))
        else:
            item.where = READY
            self.ready += 1
            heappush(self._line, (-item.priority, item.number, item))

    def _line_up(self, item: Item, key: str) -> None:
        chain = self._chains.setdefault(key, deque())
        chain.append(item)
        if len(chain) == 1:
            self._come_forward(item)
        else:
            item.where = BLOCKED

    def _unblock(self, item: Item, key: str) -> None:
        chain = self._chains[key]
        first = chain[0] is item
        chain.remove(item)
        if not chain:
            del self._chains[key]
        elif first and chain[0].where == BLOCKED:
            self._come_forward(chain[0])

    def trim(self) -> None:
        """Those at the front that are not there any more: lent or finished by what was told, or taken out."""
        while self._fresh and self._fresh[0].where != READY:
            self._fresh.popleft()
        while self._line and self._line[0][2].where != READY:
            heappop(self._line)
