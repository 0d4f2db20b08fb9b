"""Who holds which message: the rules of a queue, the same for every broker that we keep ourselves.

A book knows the messages that are not done, by their places; what they say is kept elsewhere. What it does depends on nothing but
what it is told, so a book that is told the same again is the same again.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

from penstock.errors import BadInput

READY, RESTING, BLOCKED, LENT, LEAVING, GONE = range(6)  # can be lent; until its time; behind one of its key; to the dead letters
AT_ONCE = FOREVER = 0  # no time to rest until; no time to expire at
RAN_OUT, EXPIRED = "its lease ran out", "nobody took it in time"
_SPARE = 1_000  # entries of a heap or a line that may be out of date before anybody minds


class Item:
    """A message that is not done."""

    __slots__ = (
        "begun",
        "consumer",
        "count",
        "due",
        "expires",
        "kept",
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
    kept: Any  # what whoever keeps the book wants to find with it

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
        self.begun = True  # lent, and as far as anybody knows work on it has begun
        self.where = READY

    def __lt__(self, other: "Item") -> bool:
        return self.number < other.number


_Entry = tuple[int, int, Item]  # what it is sorted by, its number, and itself


class Now(NamedTuple):
    """A moment, by two clocks."""

    boot: str  # leases end with the boot that they were given in
    beat: int  # microseconds of this boot: what leases are measured with
    wall: int  # microseconds since 1970: what delays and expiries are measured with; nobody sets it (queue/state/clock.py)


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
        self.boot, self.wall = "", 0  # of the last look at the time
        self._fresh: deque[Item] = deque()  # priority 0, as they came
        self._line: list[_Entry] = []  # the others: -priority, number
        self._resting: list[_Entry] = []  # due, number
        self._leases: list[tuple[int, int, Sequence[Item]]] = []  # until, token
        self._expiring: list[_Entry] = []  # expires, number
        self._leased = 0  # items in the heap of leases
        self._chains: dict[str, deque[Item]] = {}  # ordered: the messages of a key
        self._ages: deque[Item] | None = None  # all, as they came, if anybody ever asked for the oldest

    # What comes, and what goes

    def admit(self, items: Sequence[Item]) -> None:
        """They stand at the end now."""
        number, places, fresh, came, size = self.number, self.items, self._fresh, len(self._fresh), 0
        ordered = self.ordered
        for item in items:
            number += 1
            item.number = number
            places[item.place] = item
            size += item.size
            if item.expires:
                heappush(self._expiring, (item.expires, number, item))
            if ordered and item.key is not None:
                self._line_up(item, item.key)
            elif item.due or item.priority:
                self._come_forward(item)
            else:
                fresh.append(item)
        self.ready += len(fresh) - came
        self.bytes += size
        self.number = number
        self.counts["sent"] += len(items)
        if self._ages is not None:
            self._ages.extend(items)
        self._tidy()

    def lend(self, items: Sequence[Item], consumer: str, token: int, until: int, tells: bool = False) -> None:
        for item in items:
            self._untried(item)
            self._leave(item)
        self._hand_out(items, consumer, token, until, tells)

    def _hand_out(self, items: Sequence[Item], consumer: str, token: int, until: int, tells: bool) -> None:
        """A message is watched from its second delivery on, and from the first if that is the last: whoever had it may have died
        of another one, which it was only lent together with."""
        again, watched = 0, 1 if self.tries > 1 else 0
        for item in items:
            item.where = LENT
            item.consumer = consumer
            item.token = token
            item.until = until
            item.count += 1
            item.begun = not tells or item.count <= watched
            if item.count > 1:
                again += 1
        if again:
            self.counts["lent again"] += again
        self.held[consumer] += len(items)
        self.token = max(self.token, token)
        self._lease_out(until, token, items)

    def extend(self, item: Item, until: int) -> None:
        if item.until != until:
            item.until = until
            self._lease_out(until, item.token, [item])

    def _lease_out(self, until: int, token: int, items: Sequence[Item]) -> None:
        heappush(self._leases, (until, token, items))
        self._leased += len(items)
        self._tidy()

    def give_back(self, item: Item, due: int, reason: str) -> None:
        """It is lent again when its time has come, in its old place, unless it was lent often enough."""
        if item.count >= self.tries:
            self.set_aside(item, reason)
            return
        self._leave(item)
        item.due = due
        if item.expires:
            heappush(self._expiring, (item.expires, item.number, item))
        self._come_forward(item)

    def set_aside(self, item: Item, reason: str) -> None:
        """It goes to the dead letters: nobody gets it any more, and the next of its key comes forward."""
        self._leave(item)
        if item.where != LEAVING:
            item.where = LEAVING
            self._unblock(item)
        self.leaving[item.place] = reason

    def finish(self, items: Iterable[Item], how: str) -> None:
        """They are done; the next of their keys come forward."""
        places, ordered, count, size, held = self.items, self.ordered, 0, 0, dict[str, int]()
        for item in items:
            if item.where == LENT:
                held[item.consumer] = held.get(item.consumer, 0) + 1
            else:
                self._leave(item)
            if ordered and item.where != LEAVING:
                self._unblock(item)
            item.where = GONE
            item.kept = None  # it may stand in a line or a heap for a while
            del places[item.place]
            count += 1
            size += item.size
        for consumer, number in held.items():
            self._let_go(consumer, number)
        self.bytes -= size
        self.counts[how] += count

    def there(self) -> tuple[int, int]:
        """How many messages and bytes, without those that have to leave."""
        leaving = sum(self.items[place].size for place in self.leaving) if self.leaving else 0
        return len(self.items) - len(self.leaving), self.bytes - leaving

    # Who is next

    def take(self, consumer: str, most: int, until: int, tells: bool = False) -> list[Item]:
        """Lends the next messages: the highest priority first, and then the oldest."""
        fresh, line, taken = self._fresh, self._line, list[Item]()
        while len(taken) < most and (fresh or line):
            if line and (not fresh or line[0][0] < 0 or line[0][1] < fresh[0].number):
                item = heappop(line)[2]
            else:
                item = fresh.popleft()
            if item.where == READY:
                item.where = GONE  # in nobody's hands for the moment: it may stand in line twice
                taken.append(item)
        self.ready -= len(taken)
        if taken:
            self._hand_out(taken, consumer, self.token + 1, until, tells)
        return taken

    def oldest(self) -> Iterator[Item]:
        """Those that nobody holds, the oldest first."""
        if self._ages is None:
            self._ages = deque(self.items.values())
        while self._ages and self._ages[0].where == GONE:
            self._ages.popleft()
        return (item for item in self._ages if item.where in (READY, RESTING, BLOCKED))

    def in_line(self) -> Iterator[Item]:
        """Those that nobody holds, in the order that they would be lent."""
        there = [item for item in self.items.values() if item.where in (READY, RESTING, BLOCKED)]
        return iter(sorted(there, key=lambda item: (item.where != READY, -item.priority, item.number)))

    def of_receipts(self, receipts: Iterable[str], now: Now) -> list[Item | None]:
        """The messages that are lent under these receipts; None where the lease does not run any more."""
        items, beat, same, found = self.items, now.beat, self.boot == now.boot, list[Item | None]()
        for receipt in receipts:
            place, _, token = receipt.partition("-")
            try:
                item, number = items.get(int(place)), int(token)
            except ValueError:
                raise BadInput(f"{receipt[:60]!a} is no receipt", hint="use the one of the delivery") from None
            held = item is not None and item.where == LENT and item.token == number and item.until > beat and same
            found.append(item if held else None)
        return found

    # What time does

    def wake(self, now: Now) -> None:
        """Those whose time has come are ready, those whose lease ran out are given back, those that expired have to leave."""
        self.wall = now.wall
        if now.boot != self.boot:
            self.restart(now.boot)
        while self._resting and self._resting[0][0] <= now.wall:
            due, _, item = heappop(self._resting)
            if item.where == RESTING and item.due == due:
                self._come_forward(item)
        while self._leases and self._leases[0][0] <= now.beat:
            until, token, items = heappop(self._leases)
            self._leased -= len(items)
            for item in _lent(items, token, until):
                self._untried(item)
                self.give_back(item, AT_ONCE, RAN_OUT)
        while self._expiring and self._expiring[0][0] <= now.wall:
            item = heappop(self._expiring)[2]
            if item.where in (READY, RESTING, BLOCKED):
                self.set_aside(item, EXPIRED)

    def restart(self, boot: str) -> None:
        """The machine was started anew: nobody holds anything any more."""
        self.boot = boot
        for item in [item for item in self.items.values() if item.where == LENT]:
            self._untried(item)
            self.give_back(item, AT_ONCE, RAN_OUT)
        self._leases.clear()
        self._leased = 0

    def put_down(self, items: Iterable[Item]) -> None:
        """Items that know already where they are: those of a book that was kept elsewhere, in the order they came."""
        for item in items:
            self.items[item.place] = item
            self.bytes += item.size
            if item.expires:
                heappush(self._expiring, (item.expires, item.number, item))
            if self.ordered and item.key is not None and item.where != LEAVING:
                self._chains.setdefault(item.key, deque()).append(item)
            if item.where in (READY, RESTING):
                self._come_forward(item)
            elif item.where == LENT:
                self.held[item.consumer] += 1
                self._lease_out(item.until, item.token, [item])

    # Inside

    def _untried(self, item: Item) -> None:
        """Its lease is over. If nobody began with it, that was no try."""
        if item.where == LENT and not item.begun:
            item.count -= 1
            item.begun = True

    def _leave(self, item: Item) -> None:
        if item.where == READY:
            self.ready -= 1
        elif item.where == LENT:
            self._let_go(item.consumer, 1)
        elif item.where == LEAVING:
            self.leaving.pop(item.place, None)

    def _let_go(self, consumer: str, number: int) -> None:
        left = self.held[consumer] - number
        if left:
            self.held[consumer] = left
        else:
            del self.held[consumer]

    def _come_forward(self, item: Item) -> None:
        if item.due > self.wall:
            item.where = RESTING
            heappush(self._resting, (item.due, item.number, item))
        else:
            item.due, item.where = AT_ONCE, READY
            self.ready += 1
            heappush(self._line, (-item.priority, item.number, item))

    def _line_up(self, item: Item, key: str) -> None:
        chain = self._chains.setdefault(key, deque())
        chain.append(item)
        if len(chain) == 1:
            self._come_forward(item)
        else:
            item.where = BLOCKED

    def _unblock(self, item: Item) -> None:
        """It is out of line: the next of its key comes forward."""
        if not self.ordered or item.key is None:
            return
        chain = self._chains[item.key]
        first = chain[0] is item
        chain.remove(item)
        if not chain:
            del self._chains[item.key]
        elif first and chain[0].where == BLOCKED:
            self._come_forward(chain[0])

    def _tidy(self) -> None:
        """What was lent, done or dropped leaves lines and heaps when its turn comes; they must not grow with what is gone."""
        most = 2 * len(self.items) + _SPARE
        if len(self._fresh) > most:
            self._fresh = deque(item for item in self._fresh if item.where == READY)
        if len(self._line) > most:
            self._line = _heap(entry for entry in self._line if entry[2].where == READY)
        if len(self._resting) > most:
            self._resting = _heap(entry for entry in self._resting if entry[2].where == RESTING and entry[2].due == entry[0])
        if len(self._expiring) > most:
            self._expiring = _heap(entry for entry in self._expiring if entry[2].where != GONE)
        if self._ages and len(self._ages) > most:
            self._ages = deque(item for item in self._ages if item.where != GONE)
        if self._leased > most:
            self._tidy_leases()

    def _tidy_leases(self) -> None:
        running = [(until, token, _lent(items, token, until)) for until, token, items in self._leases]
        self._leases = [lease for lease in running if lease[2]]
        heapify(self._leases)
        self._leased = sum(len(items) for _, _, items in self._leases)


def _heap(entries: Iterable[_Entry]) -> list[_Entry]:
    """Of each item the last entry."""
    kept = list({number: (at, number, item) for at, number, item in entries}.values())
    heapify(kept)
    return kept


def _lent(items: Iterable[Item], token: int, until: int) -> list[Item]:
    """Those that are still lent under this lease."""
    return [item for item in items if item.where == LENT and item.token == token and item.until == until]
