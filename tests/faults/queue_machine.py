"""Queues against a naive model: any order of sending, lending, settling, waiting and purging, time in the test's hands.

The same machine runs over every broker: `broker` says how its queues are made, and which gaps of the suite's it has.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from faults.queue_brokers import Broker, LogBroker
from faults.queue_model import Letter, NaiveQueue, NaiveQueues
from penstock.core.time import FixedClock
from penstock.errors import BadInput, Full, Unroutable
from penstock.log.groups.leases import ManualClock
from penstock.queue.dead_letters import HEADER, dead_letter
from penstock.queue.port import Binding, Consumer, Delivery, Limit, Message, QueuePort, QueueSpec, Settlement
from waiting import until

OWN, OTHER = "work", "audit"  # OTHER takes a part of what is sent to OWN
WHO, ROUTES = st.sampled_from(["anna", "ben", "cleo"]), st.sampled_from(["a", "a.b", "a.b.c", "b"])
TICKS = st.integers(1, 6)
SELDOM = st.sampled_from([*[None] * 12, 1, 2, 3, 4, 5, 6])
FATES = st.lists(st.sampled_from(["ack", "nack", "nack", "reject", "extend"]), min_size=4, max_size=4)
ROUTED = [(Binding("a.#"),), (Binding("a.*"), Binding("*.b.c")), (Binding("#.c"), Binding("b"))]
BINDINGS = st.sampled_from([(), (), (), *ROUTED])
LIMITS = st.just(Limit()) | st.builds(
    Limit, st.sampled_from(["push-back", "drop-newest", "drop-oldest"]), st.integers(1, 6), st.none() | st.integers(8, 40)
)


class Wish(NamedTuple):
    """A message, as far as chance decides on it."""

    size: int
    named: bool
    key: str | None
    headed: bool
    priority: int
    delay: int | None
    ttl: int | None
    route: str


WISHES = st.builds(
    Wish,
    st.integers(0, 20),
    st.booleans(),
    st.sampled_from([None, "k", "l"]),
    st.booleans(),
    st.sampled_from([0, 0, 0, 1, 9]),
    SELDOM,
    SELDOM,
    ROUTES,
)


class QueueMachine(RuleBasedStateMachine):
    broker: ClassVar[type[Broker]] = Broker

    # The beginning

    @initialize(
        tries=st.integers(1, 3), retry=st.integers(0, 2), ordered=st.booleans(), limit=LIMITS, bindings=BINDINGS, others=BINDINGS
    )
    def begin(
        self, tries: int, retry: int, ordered: bool, limit: Limit, bindings: Sequence[Binding], others: Sequence[Binding]
    ) -> None:
        self.wall, self.even = FixedClock(1_700_000_000_000_000), ManualClock()
        self.opened = self.broker(self.wall, self.even)
        self.gaps, self.tick = self.broker.gaps, self.broker.tick
        rest = retry * self.tick if self.timed("delay") else timedelta(0)
        own = QueueSpec(OWN, None, bindings, 4 * self.tick, tries, rest, ordered and "ordered" not in self.gaps, self.can(limit))
        other = QueueSpec(OTHER, OWN, others, 2 * self.tick, 2, limit=self.can(Limit("drop-oldest", 3) if ordered else Limit()))
        self.queues, self.specs = self.opened.open(), [own, other]
        for spec in self.specs:
            self.queues.create(spec)
        self.model = NaiveQueues([NaiveQueue(spec) for spec in self.specs])
        self.number = 0
        self.lent: list[tuple[int, Delivery]] = []  # all that ever were, and of which queue
        self.receipts: set[tuple[str, str]] = set()  # of which queue

    def can(self, limit: Limit) -> Limit:
        return limit if {limit.policy, "lent counts", "source limits"}.isdisjoint(self.gaps) else Limit()

    def timed(self, *needed: str) -> bool:
        """Whether the broker can do what needs time, by clocks that are ours."""
        return {"clocks", *needed}.isdisjoint(self.gaps)

    # What happens

    @rule(through=st.integers(0, 1), wishes=st.lists(WISHES, min_size=1, max_size=4))
    def send(self, through: int, wishes: list[Wish]) -> None:
        messages = [self._message(wish) for wish in wishes]
        expected = self.model.send(messages, self.wall.now(), self.even.at)
        try:
            ids = self.queue(through).send(messages)
        except Unroutable:
            assert expected.wrong == "unroutable"
        except Full:
            assert expected.wrong == "full"
        except BadInput:
            assert expected.wrong == "too large"
        else:
            assert not expected.wrong
            self._learn(messages, list(ids), expected.away)
            self.queue(1).state()  # where a queue takes what others send, it may notice that it has too much only now

    def _message(self, wish: Wish) -> Message:
        self.number += 1
        return Message(
            f"{self.number}:".encode() + b"." * wish.size,
            f"id {self.number}" if wish.named else "",
            wish.key,
            {"number": str(self.number).encode()} if wish.headed else {},
            wish.priority if "priority" not in self.gaps else 0,
            wish.delay * self.tick if wish.delay and self.timed("delay") else timedelta(0),
            wish.ttl * self.tick if wish.ttl and self.timed("expiry") else None,
            wish.route,
        )

    def _learn(self, messages: list[Message], ids: list[str | None], away: list[Message]) -> None:
        """Every message has an id, its own if it had one; those that were dropped have none."""
        assert [id is None for id in ids] == [message in away for message in messages]
        for message, id in zip(messages, ids, strict=True):
            assert id is None or message.id in ("", id)
            for queue in self.model.queues:
                for letter in queue.letters:
                    if letter.message is message and id:
                        letter.message = message._replace(id=id)

    @rule(at=st.integers(0, 1), who=WHO, prefetch=st.integers(1, 9), most=TICKS, auto=st.integers(0, 9), lease=SELDOM)
    @precondition(lambda self: self.busy())
    def receive(self, at: int, who: str, prefetch: int, most: int, auto: int, lease: int | None) -> None:
        own = lease * self.tick if lease and "leases" not in self.gaps else None
        self.take(self.busy()[at % len(self.busy())], Consumer(who, prefetch, own), most, auto=not auto)

    @rule(at=st.integers(0, 1), who=WHO, most=TICKS, fates=FATES)
    @precondition(lambda self: self.busy())
    def work(self, at: int, who: str, most: int, fates: list[Any]) -> None:
        number = self.busy()[at % len(self.busy())]
        taken = self.take(number, Consumer(who), most)
        self.told(number, [Settlement(d.receipt, fate) for d, fate in zip(taken, fates, strict=False) if fate not in self.gaps])

    def take(self, number: int, consumer: Consumer, most: int, auto: bool = False) -> list[Delivery]:
        queue, model = self.queue(number), self.noticed(number)
        expected = model.next(consumer, most, self.wall.now())
        taken = list(queue.receive(consumer, most, auto))
        deadline, pause = time.monotonic() + self.broker.patience, threading.Event()
        while len(taken) < len(expected) and time.monotonic() < deadline:
            pause.wait(0.005)
            taken += queue.receive(consumer, most - len(taken), auto)
        if "old place" in self.gaps:
            ready = {letter.message.body: letter for letter in model.ready(self.wall.now())}
            assert len(taken) == len(expected)
            expected = [ready[delivery.message.body] for delivery in taken]
        assert [d.message.body for d in taken] == [letter.message.body for letter in expected]
        for delivery, letter in zip(taken, expected, strict=True):
            self._check(delivery, letter, consumer, model, auto)
            self.lent.append((number, delivery))
        return taken

    def _check(self, delivery: Delivery, letter: Letter, consumer: Consumer, model: NaiveQueue, auto: bool) -> None:
        model.lend(letter, consumer, delivery.receipt, self.even.at)
        assert told(delivery.message) == told(letter.message)
        assert (model.spec.name, delivery.receipt) not in self.receipts
        self.receipts.add((model.spec.name, delivery.receipt))
        if "attempts" not in self.gaps:
            assert delivery.attempt == letter.count
        if self.timed():
            assert delivery.sent == letter.sent
        if auto:
            model.remove(letter, "acked")

    @rule(
        at=st.integers(0, 1),
        which=st.lists(st.integers(0, 9), min_size=1, max_size=4),
        fates=FATES,
        delay=st.none() | TICKS,
        reason=st.sampled_from(["", "it is broken"]),
        tried=st.integers(0, 2),
        stale=st.integers(0, 2),
    )
    @precondition(lambda self: self.held())
    def settle(self, at: int, which: list[int], fates: list[Any], delay: int | None, reason: str, tried: int, stale: int) -> None:
        """Of what is lent; now and then of what was, and somebody else may have by now."""
        number = self.held()[at % len(self.held())]
        lent = [delivery.receipt for of, delivery in self.lent if of == number][-10:]
        among = [letter.receipt for letter in self.model.queues[number].letters if letter.holder] if stale else lent
        rest = delay * self.tick if delay and self.timed("delay") else None
        told = [
            Settlement(among[one % len(among)], fate, rest, reason, bool(tried) or "untried" in self.gaps)
            for one, fate in zip(which, fates, strict=False)
            if fate not in self.gaps
        ]
        self.told(number, told)

    @rule(at=st.integers(0, 1), ticks=TICKS, fate=st.sampled_from(["ack", "nack", "reject"]))
    @precondition(lambda self: self.timed("leases", "extend") and self.held())
    def a_long_job(self, at: int, ticks: int, fate: Any) -> None:
        """Whoever extends a lease has all that time."""
        number = self.held()[at % len(self.held())]
        mine = [letter.receipt for letter in self.model.queues[number].letters if letter.holder]
        self.told(number, [Settlement(receipt, "extend", (ticks + 1) * self.tick) for receipt in mine])
        self.time_passes(ticks, "both")
        self.told(number, [Settlement(receipt, fate) for receipt in mine])

    def told(self, number: int, settlements: list[Settlement]) -> None:
        model = self.noticed(number)
        lost = [s.receipt for s in settlements if not model.settle(s, self.wall.now(), self.even.at)]
        assert list(self.queue(number).settle(settlements)) == lost

    @rule(ticks=st.sampled_from([1, 1, 1, 2, 2, 3, 5, 6]), by=st.sampled_from(["both", "both", "both", "wall", "even"]))
    @precondition(lambda self: self.timed())
    def time_passes(self, ticks: int, by: str) -> None:
        """By both clocks, unless the machine sleeps and leases stand still, or its clock is held up and they do not."""
        if by != "even":
            self.wall.set(self.wall.now() + ticks * self.tick // timedelta(microseconds=1))
        if by != "wall":
            self.even.advance((ticks * self.tick).total_seconds())

    @rule(number=st.integers(0, 1), what=st.sampled_from(["look", "look", "peek", "dead", "dead", "purge", "end", "ask", "ask"]))
    def something_rare(self, number: int, what: str) -> None:
        if what == "look":
            self.look(number)
        elif what == "peek" and "peek" not in self.gaps:
            self.peek(number)
        elif what == "dead":
            self.read_the_dead(number)
        elif what == "purge":
            self.look(number)
            assert self.queues.purge(self.specs[number].name) == self.noticed(number).purge()
        elif what == "ask":
            self.take(number, Consumer("early"), 1)
        elif what == "end":
            self.everything_is_done()

    @rule()
    @precondition(lambda self: self.broker.reopen is not Broker.reopen)
    def opened_anew(self) -> None:
        """Where what is lent comes back by that, it is counted once; how often somebody died over it is not always known."""
        if self.opened.frees:
            for number, queue in enumerate(self.model.queues):
                often = [letter for letter in queue.letters if letter.holder and letter.count >= min(2, queue.spec.tries)]
                self.told(number, [Settlement(letter.receipt, "ack") for letter in often])
                queue.lose_all(self.wall.now())
        again = self.opened.reopen()
        assert again is not None
        self.queues = again
        for number in range(2):
            self.queue(number).state()  # what others sent is seen when it is looked at

    # What can be seen

    def look(self, number: int) -> None:
        """The state is what the model knows, and the books balance."""
        model = self.noticed(number)
        lent = len(model.letters) - len(model.free())
        self.until(lambda: self.queue(number).state().ready == len(model.free()))
        state = self.queue(number).state()
        delayed = state.delayed or 0
        assert (state.ready + delayed, state.lent) == (len(model.free()), lent)
        if "counts" not in self.gaps:
            assert {name: count for name, count in state.counts.items() if count} == +model.counts
            gone = sum(state.counts.get(how, 0) for how in ("acked", "dead", "dropped", "purged"))
            assert state.counts.get("sent", 0) == gone + state.ready + delayed + state.lent
        if "holders" not in self.gaps:
            held = [(h.consumer, h.messages) for h in state.holders]
            assert held == sorted(Counter(letter.holder for letter in model.letters if letter.holder).items())
        if self.timed():
            assert (state.bytes, state.oldest) == (_size(model), min((letter.sent for letter in model.letters), default=None))

    def peek(self, number: int) -> None:
        looked = self.queue(number).peek(3)
        expected = [told(letter.message) for letter in self.noticed(number).in_line(self.wall.now())[:3]]
        if "old place" not in self.gaps:
            assert [told(delivery.message) for delivery in looked] == expected

    def read_the_dead(self, number: int) -> None:
        """Every death is told once, with its reason."""
        model = self.noticed(number)
        self.queue(number).state()
        dead, found = self.queues.queue(self.specs[number].dead_letters), list[Delivery]()
        while len(found) < len(model.deaths):
            self.until(lambda: dead.state().ready > 0)
            more = dead.receive(Consumer("undertaker", 1_000), 1_000)
            assert more, f"{len(model.deaths) - len(found)} dead letters are not there"
            found += more
        assert not dead.settle([Settlement(delivery.receipt, "ack") for delivery in found])
        assert not dead.receive(Consumer("undertaker"))
        expected = [(told(death.message), death.queue, death.reason, death.count) for death in model.deaths]
        assert sorted(map(_death, found)) == sorted(expected)
        model.deaths.clear()

    def everything_is_done(self) -> None:
        """Once nobody holds anything, all that is there can be had and done: nothing is lost, and nothing comes twice."""
        for number, model in enumerate(self.model.queues):
            self.told(number, [Settlement(letter.receipt, "ack") for letter in model.letters if letter.holder])
            if self.timed():
                self.time_passes(12, "both")
            while self.noticed(number).letters:
                deliveries = self.take(number, Consumer("heir"), 10)
                assert deliveries
                self.told(number, [Settlement(delivery.receipt, "ack") for delivery in deliveries])
            assert not self.take(number, Consumer("heir"), 10)
            self.look(number)
            self.read_the_dead(number)

    # Prefetch

    def queue(self, number: int) -> QueuePort:
        return self.queues.queue(self.specs[number].name)

    def busy(self) -> list[int]:
        """The queues that have something to lend."""
        return [number for number in range(2) if self.noticed(number).ready(self.wall.now())]

    def held(self) -> list[int]:
        """The queues that somebody holds something of."""
        return [number for number in range(2) if any(letter.holder for letter in self.noticed(number).letters)]

    def noticed(self, number: int) -> NaiveQueue:
        model = self.model.queues[number]
        if "leases" not in self.gaps:
            model.notice(self.wall.now(), self.even.at)
        return model

    def until(self, holds: Callable[[], bool]) -> None:
        until(holds, self.broker.patience)

    def teardown(self) -> None:
        if hasattr(self, "opened"):
            self.opened.close()


def told(message: Message) -> tuple[object, ...]:
    """What of a message has to come out as it went in. Of a dead letter, without what it says of its end."""
    headers: Mapping[str, bytes] = {name: value for name, value in message.headers.items() if name != HEADER}
    return message.body, message.id, message.key or "", sorted(headers.items()), message.priority, message.route


def _death(delivery: Delivery) -> tuple[object, ...]:
    said = dead_letter(delivery.message)
    assert said
    return told(delivery.message), said.queue, said.reason, said.count


def _size(model: NaiveQueue) -> int:
    return sum(len(letter.message.body) for letter in model.letters)


class LogQueueMachine(QueueMachine):
    broker = LogBroker
