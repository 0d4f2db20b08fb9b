"""Messages that come back: untouched ones keep their tries, and one for a single queue goes to no other."""

import pytest

from penstock.errors import Unroutable
from penstock.queue.dead_letters import dead_letter
from penstock.queue.memory import MemoryQueues
from penstock.queue.port import Binding, Consumer, Message, QueueSpec, QueuesPort, Settlement
from penstock.queue.state.events import decode
from penstock.queue.state.routing import FOR

ME = Consumer("me")


def test_a_message_that_nobody_began_with_keeps_its_tries(queues: QueuesPort) -> None:
    queue = queues.create(QueueSpec("emails", tries=2))
    queue.send([Message(b"x")])
    for _ in range(5):
        [lent] = queue.receive(ME)
        assert lent.attempt == 1
        assert queue.settle([Settlement(lent.receipt, "nack", tried=False)]) == []
    [lent] = queue.receive(ME)
    queue.settle([Settlement(lent.receipt, "nack")])
    assert queue.receive(ME)[0].attempt == 2


def test_what_was_written_down_of_it_does_the_same_again() -> None:
    first, second = (MemoryQueues().create(QueueSpec("emails")) for _ in range(2))
    for queue in (first, second):
        queue.send([Message(b"x")])
        queue.receive(ME)
    item = first.machine.items[1]
    first.settle([Settlement(f"1-{item.token}", "nack", tried=False)])
    decode(["untried", 0, [1]]).apply(second.machine)
    assert [machine.items[1].attempts for machine in (first.machine, second.machine)] == [0, 0]
    assert [machine.ready for machine in (first.machine, second.machine)] == [1, 1]


def test_a_message_for_one_queue_goes_to_no_other_whatever_the_bindings_say(queues: QueuesPort) -> None:
    packing = queues.create(QueueSpec("packing", source="orders", bindings=[Binding("orders.*")]))
    billing = queues.create(QueueSpec("billing", source="orders"))
    packing.send([Message(b"back", headers={FOR: b"packing"})])
    assert [m.message.body for m in packing.receive(ME)] == [b"back"]
    assert billing.receive(ME) == []
    with pytest.raises(Unroutable):
        packing.send([Message(b"back", headers={FOR: b"elsewhere"})])


def test_a_dead_letter_is_not_for_the_queue_that_it_left(queues: QueuesPort) -> None:
    queue = queues.create(QueueSpec("emails"))
    queue.send([Message(b"x", headers={FOR: b"emails", "trace": b"7"})])
    [lent] = queue.receive(ME)
    queue.settle([Settlement(lent.receipt, "reject", reason="no such address")])
    [letter] = queues.queue("emails.dead").receive(ME)
    assert FOR not in letter.message.headers
    assert letter.message.headers["trace"] == b"7"
    dead = dead_letter(letter.message)
    assert dead is not None
    assert dead.reason == "no such address"
