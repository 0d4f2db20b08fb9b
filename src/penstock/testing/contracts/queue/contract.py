"""What every broker's queues must pass. Subclass `QueueContract`, say how yours are made, run pytest.

class TestMyQueues(QueueContract):
    def make(self, place):
        return MyQueues(place / "queues", self.wall, self.even)

A broker that runs by clocks of its own also says how time passes (`tick`, `advance`, `patience`). One that cannot do something says
so in `gaps`, with the reason: the tests that need it are left out, and another one demands that the broker refuses it, or tells it.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress

import pytest

from penstock.errors import NotFound, PenstockError
from penstock.queue.port import Binding, Limit, Message, QueueSpec, QueuesPort, Settlement
from penstock.testing.contracts.queue.bench import NEEDS
from penstock.testing.contracts.queue.dying import DyingContract
from penstock.testing.contracts.queue.leases import LeaseContract
from penstock.testing.contracts.queue.lending import LendingContract
from penstock.testing.contracts.queue.limits import LimitsContract
from penstock.testing.contracts.queue.names import NamesContract
from penstock.testing.contracts.queue.order import OrderContract
from penstock.testing.contracts.queue.routes import RoutesContract


class QueueContract(LendingContract, LeaseContract, DyingContract, OrderContract, RoutesContract, LimitsContract, NamesContract):
    """The promises of `penstock.queue.port`, each as a test."""

    def test_every_gap_is_one_that_can_be(self) -> None:
        tests = {name for name in dir(self) if name.startswith("test_")}
        assert set(self.gaps) <= NEEDS.keys() | tests
        assert all(self.gaps.values())

    def test_what_the_broker_cannot_do_it_refuses_or_tells(self, queues: QueuesPort) -> None:
        notes = self.create(queues, "videos").state().notes
        for gap in self.gaps.keys() & TRIES.keys():
            with pytest.raises(PenstockError):
                TRIES[gap](queues, self)
            with suppress(NotFound):
                queues.delete("emails")
        for gap in (self.gaps.keys() & NEEDS.keys()) - TRIES.keys() - {"clocks"}:
            assert self.gaps[gap] in notes


def _limit(limit: Limit) -> Callable[[QueuesPort, QueueContract], object]:
    return lambda queues, _: queues.create(QueueSpec("emails", limit=limit))


def _extend(queues: QueuesPort, suite: QueueContract) -> object:
    queue = suite.create(queues)
    queue.send([Message(b"a")])
    return queue.settle([Settlement(suite.take(queue)[0].receipt, "extend")])


# What a broker with a gap has to refuse. Of the others, the notes in the state of a queue tell.
TRIES: Mapping[str, Callable[[QueuesPort, QueueContract], object]] = {
    "delay": lambda queues, suite: suite.create(queues).send([Message(b"", delay=suite.tick)]),
    "expiry": lambda queues, suite: suite.create(queues).send([Message(b"", ttl=suite.tick)]),
    "priority": lambda queues, suite: suite.create(queues).send([Message(b"", priority=5)]),
    "extend": _extend,
    "headers": lambda queues, suite: suite.create(queues, bindings=(Binding(headers={"a": b"b"}),)),
    "ordered": lambda queues, suite: suite.create(queues, ordered=True),
    "peek": lambda queues, suite: suite.create(queues).peek(),
    "push-back": _limit(Limit("push-back", 1)),
    "drop-newest": _limit(Limit("drop-newest", 1)),
    "drop-oldest": _limit(Limit("drop-oldest", 1)),
}
