"""The state machine of a queue: who holds which message; the same for every broker that we run ourselves.

It knows the messages that are not done, by their positions; what they say is kept elsewhere. What it does depends on nothing but
its calls, so the same calls lead to the same state again.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop

from penstock.errors import BadInput
from penstock.queue.state.clock import Now
from penstock.queue.state.heap import ItemHeap, LeaseHeap, still_leased
from penstock.queue.state.item import AT_ONCE, BLOCKED, DELAYED, DYING, GONE, LEASED, READY, Item
from penstock.queue.state.key_order import KeyOrder

RAN_OUT, EXPIRED = "its lease ran out", "nobody took it in time"
_SPARE = 1_000  # outdated entries of a heap or a deque that do not matter


class StateMachine:
    """The messages of one queue that are not done."""

    def __init__(self, ordered: bool = False, tries: int = 5) -> None:
        self.ordered, self.tries = ordered, tries
        self.items: dict[int, Item] = {}  # by position, in the order sent
        self.dying: dict[int, str] = {}  # positions of those that go to the dead letters, and why
        self.counts: Counter[str] = Counter()
        self.held: Counter[str] = Counter()  # messages that each consumer holds
        self.bytes = self.ready = 0
        self.token = self.number = 0  # of the last lease, of the last message sent
        self.boot, self.wall = "", 0  # as of the last `advance`
        self._fresh: deque[Item] = deque()  # ready, with priority 0, as they were sent
        self._ready = ItemHeap()  # the other ready ones: -priority
        self._delayed = ItemHeap()  # due
        self._expiring = ItemHeap()  # expires
        self._leases = LeaseHeap()
        self._keys = KeyOrder()
        self._ages: deque[Item] | None = None  # all, as they were sent, once somebody asked for the oldest

    # Sent, leased, settled

    def admit(self, items: Sequence[Item]) -> None:
        """Puts them behind all others."""
        number, positions, fresh, before, size = self.number, self.items, self._fresh, len(self._fresh), 0
        ordered = self.ordered
        for item in items:
            number += 1
            item.number = number
            positions[item.position] = item
            size += item.size
            if item.expires:
                self._expiring.push(item.expires, item)
            if ordered and item.key is not None:
                self._admit_keyed(item, item.key)
            elif item.due or item.priority:
                self._schedule(item)
            else:
                fresh.append(item)
        self.ready += len(fresh) - before
        self.bytes += size
        self.number = number
        self.counts["sent"] += len(items)
        if self._ages is not None:
            self._ages.extend(items)
        self._tidy()

    def take(self, consumer: str, most: int, until: int, confirms: bool = False) -> list[Item]:
        """Leases the next messages: the highest priority first, and then the oldest. confirms: the consumer tells when it begins
        with one."""
        fresh, ready, taken = self._fresh, self._ready, list[Item]()
        while len(taken) < most and (fresh or ready):
            if ready and (not fresh or ready[0][0] < 0 or ready[0][1] < fresh[0].number):
                item = heappop(ready)[2]
            else:
                item = fresh.popleft()
            if item.status == READY:
                item.status = GONE  # nobody's for the moment: there may be two entries of it
                taken.append(item)
        self.ready -= len(taken)
        if taken:
            self._lease(taken, consumer, self.token + 1, until, confirms)
        return taken

    def lease(self, items: Sequence[Item], consumer: str, token: int, until: int, confirms: bool = False) -> None:
        """Leases these, as `take` did elsewhere."""
        for item in items:
            self._uncount(item)
            self._leave(item)
        self._lease(items, consumer, token, until, confirms)

    def _lease(self, items: Sequence[Item], consumer: str, token: int, until: int, confirms: bool) -> None:
        """The consumer has to confirm its beginning from the second delivery of a message on, and from the first if that is the
        last: whoever had it may have died of another one, which it was only leased together with."""
        again, unconfirmed = 0, 1 if self.tries > 1 else 0
        for item in items:
            item.status = LEASED
            item.consumer = consumer
            item.token = token
            item.until = until
            item.attempts += 1
            item.begun = not confirms or item.attempts <= unconfirmed
            if item.attempts > 1:
                again += 1
        if again:
            self.counts["lent again"] += again
        self.held[consumer] += len(items)
        self.token = max(self.token, token)
        self._leases.push(until, token, items)
        self._tidy()

    def extend(self, item: Item, until: int) -> None:
        if item.until != until:
            item.until = until
            self._leases.push(until, item.token, [item])
            self._tidy()

    def give_back(self, item: Item, due: int, reason: str) -> None:
        """It is delivered again when it is due, in its old place, unless this was its last try."""
        if item.attempts >= self.tries:
            self.reject(item, reason)
            return
        self._leave(item)
        item.due = due
        if item.expires:
            self._expiring.push(item.expires, item)
        self._schedule(item)

    def reject(self, item: Item, reason: str) -> None:
        """It goes to the dead letters: it is not delivered any more, and no longer blocks the next of its key."""
        self._leave(item)
        if item.status != DYING:
            item.status = DYING
            self._unblock(item)
        self.dying[item.position] = reason

    def finish(self, items: Iterable[Item], outcome: str) -> None:
        """They are done, and no longer block the next of their keys."""
        positions, ordered, count, size, held = self.items, self.ordered, 0, 0, dict[str, int]()
        for item in items:
            if item.status == LEASED:
                held[item.consumer] = held.get(item.consumer, 0) + 1
            else:
                self._leave(item)
            if ordered and item.status != DYING:
                self._unblock(item)
            item.status = GONE
            item.payload = None  # a heap may hold the item for a while
            del positions[item.position]
            count += 1
            size += item.size
        for consumer, number in held.items():
            self._let_go(consumer, number)
        self.bytes -= size
        self.counts[outcome] += count

    # What is there

    def load(self) -> tuple[int, int]:
        """How many messages and bytes, without those that go to the dead letters."""
        dying = sum(self.items[position].size for position in self.dying) if self.dying else 0
        return len(self.items) - len(self.dying), self.bytes - dying

    def oldest(self) -> Iterator[Item]:
        """Those that nobody holds, the oldest first."""
        if self._ages is None:
            self._ages = deque(self.items.values())
        while self._ages and self._ages[0].status == GONE:
            self._ages.popleft()
        return (item for item in self._ages if item.waiting)

    def waiting(self) -> Iterator[Item]:
        """Those that nobody holds, in the order that they would be leased."""
        found = [item for item in self.items.values() if item.waiting]
        return iter(sorted(found, key=lambda item: (item.status != READY, -item.priority, item.number)))

    def leased_under(self, receipts: Iterable[str], now: Now) -> list[Item | None]:
        """The messages that are leased under these receipts; None where the lease has ended."""
        items, beat, same, found = self.items, now.beat, self.boot == now.boot, list[Item | None]()
        for receipt in receipts:
            position, _, token = receipt.partition("-")
            try:
                item, number = items.get(int(position)), int(token)
            except ValueError:
                raise BadInput(f"{receipt[:60]!a} is no receipt", hint="use the one of the delivery") from None
            held = item is not None and item.status == LEASED and item.token == number and item.until > beat and same
            found.append(item if held else None)
        return found

    # What time does

    def advance(self, now: Now) -> bool:
        """Delayed messages that are due become ready, ended leases are given back, expired messages die. Whether the machine was
        started anew."""
        self.wall, rebooted = now.wall, now.boot != self.boot
        if rebooted:
            self.reboot(now.boot)
        while self._delayed and self._delayed[0][0] <= now.wall:
            due, _, item = heappop(self._delayed)
            if item.status == DELAYED and item.due == due:
                self._schedule(item)
        while self._leases and self._leases[0][0] <= now.beat:
            until, token, items = heappop(self._leases)
            self._leases.items -= len(items)
            for item in still_leased(items, token, until):
                self._uncount(item)
                self.give_back(item, AT_ONCE, RAN_OUT)
        while self._expiring and self._expiring[0][0] <= now.wall:
            item = heappop(self._expiring)[2]
            if item.waiting:
                self.reject(item, EXPIRED)
        return rebooted

    def reboot(self, boot: str) -> None:
        """The machine was started anew: nobody holds anything any more."""
        self.boot = boot
        for item in [item for item in self.items.values() if item.status == LEASED]:
            self._uncount(item)
            self.give_back(item, AT_ONCE, RAN_OUT)
        self._leases = LeaseHeap()

    def restore(self, items: Iterable[Item]) -> None:
        """Takes items of a snapshot as they are, in the order sent."""
        for item in items:
            self.items[item.position] = item
            self.bytes += item.size
            if item.expires:
                self._expiring.push(item.expires, item)
            if self.ordered and item.key is not None and item.status != DYING:
                self._keys.add(item, item.key)
            if item.status in (READY, DELAYED):
                self._schedule(item)
            elif item.status == LEASED:
                self.held[item.consumer] += 1
                self._leases.push(item.until, item.token, [item])

    # Inside

    def _uncount(self, item: Item) -> None:
        """Its lease is over. If nobody began with it, that was no try."""
        if item.status == LEASED and not item.begun:
            item.attempts -= 1
            item.begun = True

    def _leave(self, item: Item) -> None:
        if item.status == READY:
            self.ready -= 1
        elif item.status == LEASED:
            self._let_go(item.consumer, 1)
        elif item.status == DYING:
            self.dying.pop(item.position, None)

    def _let_go(self, consumer: str, number: int) -> None:
        left = self.held[consumer] - number
        if left:
            self.held[consumer] = left
        else:
            del self.held[consumer]

    def _schedule(self, item: Item) -> None:
        """It is ready now, or delayed until it is due."""
        if item.due > self.wall:
            item.status = DELAYED
            self._delayed.push(item.due, item)
        else:
            item.due, item.status = AT_ONCE, READY
            self.ready += 1
            self._ready.push(-item.priority, item)

    def _admit_keyed(self, item: Item, key: str) -> None:
        if self._keys.add(item, key):
            self._schedule(item)
        else:
            item.status = BLOCKED

    def _unblock(self, item: Item) -> None:
        """It is out of the order of its key: the next one can be leased."""
        if self.ordered and item.key is not None:
            following = self._keys.remove(item, item.key)
            if following:
                self._schedule(following)

    def _tidy(self) -> None:
        """Entries of items that moved on are dropped when they are popped; they must not pile up until then."""
        most = 2 * len(self.items) + _SPARE
        if len(self._fresh) > most:
            self._fresh = deque(item for item in self._fresh if item.status == READY)
        if len(self._ready) > most:
            self._ready.tidy(lambda _, item: item.status == READY)
        if len(self._delayed) > most:
            self._delayed.tidy(lambda due, item: item.status == DELAYED and item.due == due)
        if len(self._expiring) > most:
            self._expiring.tidy(lambda _, item: item.status != GONE)
        if self._ages and len(self._ages) > most:
            self._ages = deque(item for item in self._ages if item.status != GONE)
        if self._leases.items > most:
            self._leases.tidy()
