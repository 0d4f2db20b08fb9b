"""What the suite of queues works with: clocks that a test can hold, hands that send and take, and the gaps of a broker."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest

from penstock.core.time import FixedClock, micros
from penstock.log.groups.leases import ManualClock
from penstock.queue.dead_letters import DeadLetter, dead_letter
from penstock.queue.port import Consumer, Delivery, Fate, Message, QueuePort, QueueSpec, QueuesPort, QueueState, Settlement
from penstock.testing.waiting import until

_Test = TypeVar("_Test", bound=Callable[..., None])

# What a broker may lack, by the name that `gaps` has for it.
NEEDS = {
    "all or nothing": "of messages that are sent together, all are in or none",
    "attempts": "a delivery tells how often its message was lent",
    "clocks": "the test holds the clocks that the broker reads",
    "counts": "the state counts what became of messages",
    "delay": "a message can wait for its time",
    "drop-newest": "a queue that is full does not keep what is sent",
    "drop-oldest": "a queue that is full lets go of its oldest",
    "expiry": "a message that nobody took in time goes to the dead letters",
    "extend": "a lease can be made longer",
    "headers": "bindings match headers",
    "holders": "the state tells who holds how much, and for how long",
    "leases": "a message that is held for too long is lent again",
    "lent counts": "a limit counts what is lent, too",
    "old place": "a message that comes back stands where it stood",
    "ordered": "of one key, one message at a time",
    "peek": "messages can be looked at without a change",
    "priority": "the highest of ten priorities comes first",
    "push-back": "senders wait for room, and then get Full",
    "source limits": "the limit of a queue holds for whoever sends to it through another queue of its source",
    "untried": "a delivery that nobody began with does not count",
}


def needs(*what: str) -> Callable[[_Test], _Test]:
    """Of a test: it is left out where the broker declares one of these gaps."""
    assert NEEDS.keys() >= set(what)

    def marked(test: _Test) -> _Test:
        test.needs = what  # type: ignore[attr-defined]
        return test

    return marked


class QueueBench(ABC):
    """How the queues of a broker are made, and what it lacks."""

    gaps: ClassVar[Mapping[str, str]] = {}  # names of NEEDS, or of single tests, and the reason why this broker cannot
    tick = timedelta(seconds=10)  # durations of the suite are so many of these: a broker that has its own clock takes less
    patience = 0.0  # seconds until what was sent, given back or dead can be taken

    @abstractmethod
    def make(self, place: Path) -> QueuesPort:
        """A broker without queues, that reads `self.wall` and `self.even` where it can."""

    def advance(self, ticks: float) -> None:
        """Time passes. A broker with clocks of its own waits for that long."""
        self.even.advance(ticks * self.tick.total_seconds())
        self.wall.set(self.wall.now() + round(ticks * micros(self.tick)))

    @pytest.fixture(autouse=True)
    def clocks(self) -> None:
        self.wall, self.even = FixedClock(1_705_312_800_000_000), ManualClock()

    @pytest.fixture(autouse=True)
    def leave_out(self, request: pytest.FixtureRequest) -> None:
        """A test that needs what the broker lacks is skipped, with the reason."""
        for name in (request.function.__name__, *getattr(request.function, "needs", ())):
            if name in self.gaps:
                pytest.skip(self.gaps[name])

    @pytest.fixture
    def queues(self, tmp_path: Path) -> QueuesPort:
        return self.make(tmp_path)

    @pytest.fixture
    def queue(self, queues: QueuesPort) -> QueuePort:
        """The queue `emails` with a lease of three ticks, and nothing else said."""
        return self.create(queues)

    def create(self, queues: QueuesPort, name: str = "emails", **settings: Any) -> QueuePort:
        return queues.create(QueueSpec(name, **{"lease": 3 * self.tick, **settings}))

    # Prefetch

    def take(self, queue: QueuePort, count: int = 1, by: str = "anna", auto: bool = False, **how: Any) -> list[Delivery]:
        """So many messages, lent; no fewer."""
        taken: list[Delivery] = []

        def enough() -> bool:
            if len(taken) < count:
                taken.extend(queue.receive(Consumer(by, **how), count - len(taken), auto))
            return len(taken) == count

        assert self.wait(enough), f"wanted {count} messages, got {bodies(taken)}"
        return taken

    def none(self, queue: QueuePort, by: str = "nobody") -> bool:
        """Whether there is nothing to be lent."""
        return not queue.receive(Consumer(by), 10)

    def settle(self, queue: QueuePort, fate: Fate, *deliveries: Delivery, **how: Any) -> None:
        lost = queue.settle([Settlement(delivery.receipt, fate, **how) for delivery in deliveries])
        assert list(lost) == [], "their leases ran out"

    def dead_of(self, queues: QueuesPort, name: str = "emails", count: int = 1) -> list[tuple[Message, DeadLetter]]:
        """The dead letters of a queue that has nothing else to lend, and what they say of their end. A queue notices what time
        did when something is wanted of it."""
        queue, found = queues.queue(name), list[Message]()
        dead = queues.queue(queue.spec.dead_letters)

        def enough() -> bool:
            assert self.none(queue)
            found.extend(delivery.message for delivery in dead.receive(Consumer("undertaker"), count - len(found)))
            return len(found) == count

        assert self.wait(enough), f"wanted {count} dead letters, got {found}"
        return [(letter, said) for letter in found if (said := dead_letter(letter))]

    def seen(self, queue: QueuePort, holds: Callable[[QueueState], bool]) -> QueueState:
        """The state, once it is so."""
        found: list[QueueState] = []

        def so() -> bool:
            found[:] = [queue.state()]
            return holds(found[0])

        assert self.wait(so), found[0]
        return found[0]

    def wait(self, holds: Callable[[], bool]) -> bool:
        """Whether it came to hold while there was patience."""
        return until(holds, self.patience)


def bodies(deliveries: Sequence[Delivery]) -> list[bytes]:
    return [delivery.message.body for delivery in deliveries]


def letters(*texts: str, **how: Any) -> list[Message]:
    """Messages with these bodies."""
    return [Message(text.encode(), **how) for text in texts]
