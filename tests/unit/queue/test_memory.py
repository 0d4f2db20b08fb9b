"""Queues in memory: what only they do. The rest is in the suite of queues."""

import threading
from collections import Counter
from datetime import timedelta

import pytest

from penstock.core.time import FixedClock
from penstock.errors import Full, NotFound
from penstock.log.groups.leases import ManualClock
from penstock.queue import memory
from penstock.queue.dead_letters import dead_letter
from penstock.queue.memory import NOTE, MemoryQueues
from penstock.queue.port import Consumer, Limit, Message, QueueSpec, Settlement
from waiting import until

ANNA = Consumer("anna")


def test_it_says_that_it_is_gone_with_the_process() -> None:
    assert NOTE in MemoryQueues().create(QueueSpec("emails")).state().notes


def test_without_clocks_of_a_test_it_reads_those_of_the_machine() -> None:
    queue = MemoryQueues().create(QueueSpec("emails"))
    queue.send([Message(b"a")])
    [delivery] = queue.receive(ANNA)
    assert delivery.sent > 1_700_000_000_000_000
    assert list(queue.settle([Settlement(delivery.receipt, "ack")])) == []


def test_memory_is_no_buffer_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MOST", (3, 1 << 20))
    queues = MemoryQueues()
    queue = queues.create(QueueSpec("emails"))
    audit = queues.create(QueueSpec("audit", source="emails"))
    queue.send([Message(b"a")] * 3)
    queue.receive(ANNA, 3, auto=True)
    with pytest.raises(Full, match="queue audit is full: it holds at most 3 messages and 1,048,576 bytes"):
        queue.send([Message(b"b")])
    assert not queue.receive(ANNA)
    audit.receive(ANNA, 3, auto=True)
    queue.send([Message(b"b")])


def test_dead_letters_are_no_buffer_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MOST", (3, 1 << 20))
    queues = MemoryQueues()
    queue = queues.create(QueueSpec("emails"))
    for number in range(5):
        queue.send([Message(str(number).encode())])
        [delivery] = queue.receive(ANNA)
        queue.settle([Settlement(delivery.receipt, "reject")])
    state = queues.queue("emails.dead").state()
    assert (state.ready, state.counts["dropped"]) == (3, 2)
    assert [d.message.body for d in queues.queue("emails.dead").receive(ANNA, 5)] == [b"2", b"3", b"4"]


@pytest.mark.parametrize("wait", [-1.0, float("nan")])
def test_a_wait_that_is_none_ends_at_once(wait: float) -> None:
    queue = MemoryQueues().create(QueueSpec("emails", limit=Limit("push-back", 1)))
    queue.send([Message(b"a")])
    with pytest.raises(Full):
        queue.send([Message(b"b")], wait)


def waiting_sender(queues: MemoryQueues, wait: float) -> tuple[threading.Thread, list[object]]:
    """A sender that waits for room in the queue `emails`, which is full; and what became of it."""
    queue, became = queues.queue("emails"), list[object]()

    def send() -> None:
        try:
            became.append(queue.send([Message(b"b")], wait))
        except (Full, NotFound) as error:
            became.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    assert until(lambda: bool(queues.guard._waiters))  # type: ignore[attr-defined]
    return thread, became


def test_a_sender_may_wait_for_ever() -> None:
    queues = MemoryQueues()
    queue = queues.create(QueueSpec("emails", limit=Limit("push-back", 1)))
    queue.send([Message(b"a")])
    thread, became = waiting_sender(queues, float("inf"))
    assert queue.receive(ANNA, auto=True)
    thread.join()
    assert [d.message.body for d in queue.receive(ANNA)] == [b"b"]
    assert not isinstance(became[0], Exception)


def test_a_sender_that_waits_is_told_when_the_queue_is_deleted() -> None:
    queues = MemoryQueues()
    queues.create(QueueSpec("emails", limit=Limit("push-back", 1))).send([Message(b"a")])
    thread, became = waiting_sender(queues, 60)
    queues.delete("emails")
    thread.join()
    assert isinstance(became[0], NotFound)


def test_a_queue_that_comes_while_a_sender_waits_gets_its_messages_too() -> None:
    queues = MemoryQueues()
    queue = queues.create(QueueSpec("emails", limit=Limit("push-back", 1)))
    queue.send([Message(b"a")])
    thread, _ = waiting_sender(queues, 60)
    audit = queues.create(QueueSpec("audit", source="emails"))
    queue.receive(ANNA, auto=True)
    thread.join()
    assert [d.message.body for d in audit.receive(ANNA, 5)] == [b"b"]


def test_threads_send_receive_and_settle_at_once_and_the_books_balance() -> None:
    queues = MemoryQueues()
    queue = queues.create(QueueSpec("emails", limit=Limit("push-back", 50), tries=2))
    done, guard = Counter[bytes](), threading.Lock()

    def send(sender: int) -> None:
        for number in range(0, 300, 3):
            queue.send([Message(f"{sender}/{number + more}".encode()) for more in range(3)], wait=60)

    def work(worker: int) -> None:
        while sum(done.values()) < 900:
            deliveries = queue.receive(Consumer(f"w{worker}"), 5)
            fates = ["nack" if d.attempt == 1 and d.message.body.endswith(b"7") else "ack" for d in deliveries]
            assert not queue.settle([Settlement(d.receipt, f) for d, f in zip(deliveries, fates, strict=True)])  # type: ignore[arg-type]
            with guard:
                done.update(d.message.body for d, fate in zip(deliveries, fates, strict=True) if fate == "ack")

    threads = [threading.Thread(target=send, args=(n,)) for n in range(3)] + [
        threading.Thread(target=work, args=(n,)) for n in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(done.values()) == {1}
    state = queue.state()
    assert (state.counts["sent"], state.counts["acked"], state.ready, state.lent) == (900, 900, 0, 0)


def test_queues_that_are_each_others_dead_letters_do_no_harm() -> None:
    wall, even = FixedClock(10**15), ManualClock()
    queues = MemoryQueues(wall, even)
    for name, dead in (("three", "one"), ("one", "two"), ("two", "three")):
        if name in queues.names():
            queues.delete(name)
        queues.create(QueueSpec(name, dead=dead, limit=Limit("drop-oldest", 1)))
    one, two = queues.queue("one"), queues.queue("two")
    one.send([Message(b"a", ttl=timedelta(seconds=1))])
    two.send([Message(b"b", ttl=timedelta(seconds=1))])
    wall.set(wall.now() + 5_000_000)
    assert not one.receive(ANNA)
    [letter] = queues.queue("two").receive(ANNA)
    said = dead_letter(letter.message)
    assert said
    assert (letter.message.body, said.queue) == (b"a", "one")
    assert [d.message.body for d in queues.queue("three").receive(ANNA)] == [b"b"]


def test_nobody_can_change_what_is_in_the_queue() -> None:
    queue = MemoryQueues().create(QueueSpec("emails"))
    queue.send([Message(b"a", headers={"x": b"y"})])
    [delivery] = queue.receive(ANNA)
    with pytest.raises(TypeError):
        delivery.message.headers["x"] = b"z"  # type: ignore[index]


def test_a_handful_of_queues_among_thousands_costs_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A send looks at the queues of its source, and at no others."""
    queues = MemoryQueues()
    for number in range(200):
        queues.create(QueueSpec(f"other-{number}"))
    mine = queues.create(QueueSpec("mine"))
    looked = Counter[str]()
    real = memory.MemoryQueue.has_room

    def counted(self: memory.MemoryQueue, messages: list[Message]) -> bool:
        looked[self.spec.name] += 1
        return real(self, messages)

    monkeypatch.setattr(memory.MemoryQueue, "has_room", counted)
    mine.send([Message(b"a")])
    assert looked == {"mine": 1}
