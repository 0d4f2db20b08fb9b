"""What a RabbitMQ does beyond the suite of queues: broken connections, restarts, other programs, a full memory."""

import os
import secrets
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest

from faults.rabbit_proxy import Proxy
from penstock.core.time import SystemClock
from penstock.errors import AlreadyThere, BadInput, Full, LogError, NotFound, Unroutable
from penstock.queue.dead_letters import dead_letter
from penstock.queue.port import Binding, Consumer, Delivery, Limit, Message, QueuePort, QueueSpec, Settlement
from penstock.queue.rabbitmq.queue import FOREIGN
from penstock.queue.rabbitmq.queues import RabbitQueues
from penstock.testing.servers.rabbitmq_server import RabbitServer
from waiting import until

ANNA = Consumer("anna", prefetch=10_000, lease=timedelta(minutes=10))  # what is lent does not run out meanwhile


@pytest.fixture
def url(rabbitmq_server: RabbitServer) -> str:
    return f"{rabbitmq_server.url}?prefix=t{secrets.token_hex(4)}."


@pytest.fixture
def queues(url: str) -> Iterator[RabbitQueues]:
    with RabbitQueues(url) as queues:
        yield queues
        for name in queues.names():
            with suppress(NotFound):
                queues.delete(name)


@pytest.fixture
def proxy(rabbitmq_server: RabbitServer) -> Iterator[Proxy]:
    with Proxy(rabbitmq_server.port) as proxy:
        yield proxy


def through(proxy: Proxy, queues: RabbitQueues, more: str = "") -> RabbitQueues:
    """The same queues over a line that can be cut."""
    return RabbitQueues(f"amqp://127.0.0.1:{proxy.port}?prefix={queues.settings.prefix}{more}")


def take(queue: QueuePort, count: int, consumer: Consumer = ANNA) -> list[Delivery]:
    taken: list[Delivery] = []

    def enough() -> bool:
        taken.extend(queue.receive(consumer, count - len(taken)))
        return len(taken) == count

    assert until(enough, 30), f"wanted {count}, got {len(taken)}"
    return taken


def ack(queue: QueuePort, deliveries: Sequence[Delivery]) -> list[str]:
    return list(queue.settle([Settlement(delivery.receipt, "ack") for delivery in deliveries]))


@contextmanager
def alarm(server: RabbitServer) -> Iterator[None]:
    """The server takes no messages, and no confirmation is so fresh that a sender could believe otherwise."""
    server.alarm(on=True)
    try:
        threading.Event().wait(0.5)
        yield
    finally:
        server.alarm(on=False)


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    told: list[Any] = []
    thread = threading.Thread(target=lambda: told.append(work()))
    thread.start()
    return thread, told


# Several processes, and other programs


def test_another_process_finds_queues_and_their_settings(url: str, queues: RabbitQueues) -> None:
    spec = QueueSpec("emails", "orders", (Binding("a.*", {"kind": b"\xff"}),), timedelta(seconds=7), 4, limit=Limit("buffer", 9))
    queues.create(spec)
    with RabbitQueues(url) as others:
        assert others.names() == ["emails", "emails.dead"]
        assert others.queue("emails").spec == spec
        with pytest.raises(AlreadyThere):
            others.create(QueueSpec("emails"))
        others.delete("emails")
        with pytest.raises(NotFound):
            queues.queue("emails")


def test_processes_that_make_queues_at_once_lose_none(url: str, queues: RabbitQueues) -> None:
    def make(who: int) -> None:
        with RabbitQueues(url) as mine:
            for number in range(3):
                mine.create(QueueSpec(f"q-{who}-{number}", dead="dead"))

    threads = [in_thread(lambda who=who: make(who))[0] for who in range(4)]  # type: ignore[misc]
    for thread in threads:
        thread.join()
    assert queues.names() == ["dead", *(f"q-{who}-{number}" for who in range(4) for number in range(3))]


def test_of_two_that_make_the_same_queue_one_is_told(url: str, queues: RabbitQueues) -> None:
    def make() -> bool:
        with RabbitQueues(url) as mine, suppress(AlreadyThere):
            mine.create(QueueSpec("emails"))
            return True
        return False

    pairs = [in_thread(make) for _ in range(4)]
    for thread, _ in pairs:
        thread.join()
    assert sorted(told[0] for _, told in pairs) == [False, False, False, True]


def test_a_queue_of_another_program_can_be_used(rabbitmq_server: RabbitServer, queues: RabbitQueues) -> None:
    import pika

    name = f"{queues.settings.prefix}legacy"
    with pika.BlockingConnection(pika.URLParameters(rabbitmq_server.url)) as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=True)
        headers = {"n": 5, "text": "ü", "list": [1, "a"], "none": None}
        channel.basic_publish("", name, b"1", pika.BasicProperties(message_id="one", headers=headers, timestamp=1_700_000_000))
        channel.basic_publish("", name, b"2")
        queue = queues.queue("legacy")
        assert FOREIGN in queue.state().notes
        first, second = take(queue, 2)
        assert (first.message.id, first.attempt, first.sent) == ("one", 1, 1_700_000_000_000_000)
        assert first.message.headers == {"n": b"5", "text": "ü".encode(), "list": b'[1,"a"]', "none": b"null"}
        assert (second.message.body, second.message.id, second.message.headers) == (b"2", "", {})
        assert list(queue.settle([Settlement(first.receipt, "nack"), Settlement(second.receipt, "reject", reason="bad")])) == []
        assert [d.message.body for d in take(queue, 1)] == [b"1"]
        queue.send([Message(b"3", "three")])
        assert [d.message.body for d in take(queue, 1)] == [b"3"]
        letter = take(queues.queue("legacy.dead"), 1)[0].message
        said = dead_letter(letter)
        assert said is not None
        assert (letter.body, said.queue, said.reason) == (b"2", "legacy", "bad")
        channel.queue_delete(name)


def test_a_queue_that_others_made_is_not_taken_for_ours(rabbitmq_server: RabbitServer, queues: RabbitQueues) -> None:
    import pika

    name = f"{queues.settings.prefix}legacy"
    with pika.BlockingConnection(pika.URLParameters(rabbitmq_server.url)) as connection:
        connection.channel().queue_declare(name, durable=True)
        with pytest.raises(AlreadyThere, match="made otherwise"):
            queues.create(QueueSpec("legacy"))
        assert queues.names() == []
        connection.channel().queue_delete(name)


def test_an_exchange_that_others_made_is_not_taken_for_a_source(rabbitmq_server: RabbitServer, queues: RabbitQueues) -> None:
    import pika

    name = f"{queues.settings.prefix}events"
    with pika.BlockingConnection(pika.URLParameters(rabbitmq_server.url)) as connection:
        connection.channel().exchange_declare(name, "fanout")
        with pytest.raises(BadInput, match="not as a topic exchange"):
            queues.create(QueueSpec("emails", source="events"))
        connection.channel().exchange_delete(name)


def test_headers_that_mean_something_to_rabbitmq_come_out_as_they_went_in(queues: RabbitQueues) -> None:
    queue = queues.create(QueueSpec("emails", bindings=(Binding(headers={"CC": b"emails"}),)))
    headers = dict.fromkeys(("CC", "BCC", "x-death", "penstock-message", "x-delivery-count", "x-mine"), b"emails")
    queue.send([Message(b"", headers=headers)])
    assert [delivery.message.headers for delivery in take(queue, 1)] == [headers]


def test_names_that_are_ours_are_refused(queues: RabbitQueues) -> None:
    for spec in (QueueSpec("penstock.specs"), QueueSpec("a", source="amq.topic"), QueueSpec("a", dead="penstock.x")):
        with pytest.raises(BadInput, match="taken"):
            queues.create(spec)
    with pytest.raises(BadInput, match="x-"):
        queues.create(QueueSpec("a", bindings=(Binding(headers={"x-a": b"1"}),)))


# Confirmed, returned, refused


def test_what_was_not_confirmed_when_the_line_broke_is_sent_again_with_its_id(queues: RabbitQueues, proxy: Proxy) -> None:
    """FAULTS row 50."""
    queue = queues.create(QueueSpec("emails"))
    with through(proxy, queues) as shaky:
        sender = shaky.queue("emails")
        proxy.mute_at = b"the first one"
        messages = [Message(b"the first one", "m-0")] + [Message(b"%d" % n, f"m-{n}") for n in range(1, 51)]
        thread, told = in_thread(lambda: sender.send(messages))
        assert until(lambda: queue.state().ready == 51, 30)
        proxy.mute_at = None
        proxy.cut()
        thread.join()
        assert told == [[message.id for message in messages]]
    taken = take(queue, 102)
    assert Counter(delivery.message.id for delivery in taken) == Counter({message.id: 2 for message in messages})


def test_a_line_that_is_cut_again_and_again_loses_nothing(queues: RabbitQueues, proxy: Proxy) -> None:
    queue = queues.create(QueueSpec("emails"))
    with through(proxy, queues) as shaky:
        sender = shaky.queue("emails")
        for number in range(20):
            thread, told = in_thread(lambda number=number: sender.send([Message(b"", f"{number}-{n}") for n in range(20)]))  # type: ignore[misc]
            proxy.cut()
            thread.join()
            assert len(told[0]) == 20
    found = {delivery.message.id for delivery in take(queue, queue.state().ready)}
    assert found == {f"{number}-{n}" for number in range(20) for n in range(20)}


def test_what_no_queue_takes_is_returned_although_bindings_said_otherwise(
    rabbitmq_server: RabbitServer, queues: RabbitQueues
) -> None:
    import pika

    queue, prefix = queues.create(QueueSpec("emails")), queues.settings.prefix
    queue.send([Message(b"a")])
    with pika.BlockingConnection(pika.URLParameters(rabbitmq_server.url)) as connection:
        connection.channel().queue_unbind(f"{prefix}emails", f"{prefix}emails", "#")
    with pytest.raises(Unroutable, match=r"(?s)with route ''.*2 of 2 messages were not sent"):
        queue.send([Message(b"b"), Message(b"c")])
    assert len(take(queue, 1)) == 1


def test_a_place_to_rest_that_somebody_deleted_is_made_again(rabbitmq_server: RabbitServer, queues: RabbitQueues) -> None:
    import pika

    queue = queues.create(QueueSpec("emails"))
    for _ in range(2):
        queue.send([Message(b"a", delay=timedelta(milliseconds=123))])
        ack(queue, take(queue, 1))
        with pika.BlockingConnection(pika.URLParameters(rabbitmq_server.url)) as connection:
            connection.channel().queue_delete("penstock.delay.130")


def test_dead_letters_are_kept_although_somebody_deleted_their_queue(queues: RabbitQueues) -> None:
    queue = queues.create(QueueSpec("emails"))
    queues.delete("emails.dead")
    queue.send([Message(b"a")])
    queue.settle([Settlement(take(queue, 1)[0].receipt, "reject")])
    assert [d.message.body for d in take(queues.queue("emails.dead"), 1)] == [b"a"]


def test_a_broker_short_of_memory_pushes_back_and_consumers_go_on(rabbitmq_server: RabbitServer, queues: RabbitQueues) -> None:
    """FAULTS row 50."""
    queue = queues.create(QueueSpec("emails", tries=1))
    queue.send([Message(b"%d" % n) for n in range(10)])
    with alarm(rabbitmq_server):
        with pytest.raises(Full, match=r"(?s)takes no messages: low on memory.*waited 0.2 seconds; nothing of this was sent"):
            queue.send([Message(b"x")] * 3, wait=0.2)
        assert queue.state().counts["refused"] == 3
        assert ack(queue, take(queue, 10)) == []
        thread, told = in_thread(lambda: queue.send([Message(b"y", "y")], wait=60))
    thread.join()
    assert told == [["y"]]
    assert [d.message.id for d in take(queue, 1)] == ["y"]
    assert queue.state().ready == 0


def test_a_message_that_is_too_large_is_told_and_holds_up_nobody(queues: RabbitQueues) -> None:
    queue = queues.create(QueueSpec("emails"))
    with pytest.raises(BadInput, match=r"too large(?s:.*)0 of 1 messages are in"):
        queue.send([Message(bytes(17 << 20))])
    assert queue.send([Message(b"a", "a")]) == ["a"]
    assert [d.message.id for d in take(queue, 1)] == ["a"]


def test_senders_to_a_queue_that_is_gone_hold_up_nobody(queues: RabbitQueues) -> None:
    queue, gone = queues.create(QueueSpec("emails")), queues.create(QueueSpec("gone"))
    queues.delete("gone")

    def send(where: QueuePort, who: int) -> int:
        refused = 0
        for number in range(20):
            try:
                where.send([Message(b"", f"{who}-{number}")])
            except NotFound:
                refused += 1
        return refused

    pairs = [in_thread(lambda who=who: send(gone if who % 2 else queue, who)) for who in range(4)]  # type: ignore[misc]
    for thread, _ in pairs:
        thread.join()
    assert [told for _, told in pairs] == [[0], [20], [0], [20]]
    found = {delivery.message.id for delivery in take(queue, queue.state().ready)}
    assert found == {f"{who}-{number}" for who in (0, 2) for number in range(20)}


# What is not lent


def test_a_look_shows_the_first_messages_and_they_stay(queues: RabbitQueues) -> None:
    queue = queues.create(QueueSpec("emails"))
    queue.send([Message(b"%d" % n, f"m-{n}") for n in range(8)])
    for most in (2, 5):
        looked = queue.peek(most)
        assert [(d.message.id, d.receipt) for d in looked] == [(f"m-{n}", "") for n in range(most)]
        assert queue.state().ready == 8  # at once
    assert [d.message.id for d in take(queue, 8)] == [f"m-{n}" for n in range(8)]


def test_a_message_that_comes_too_early_rests_again(rabbitmq_server: RabbitServer, queues: RabbitQueues) -> None:
    """One that rests for longer than the broker can measure comes several times before its time."""
    import pika

    queue = queues.create(QueueSpec("emails"))

    def early(seconds: int) -> int | None:
        due = SystemClock().now() + seconds * 1_000_000
        with pika.BlockingConnection(pika.URLParameters(rabbitmq_server.url)) as connection:
            properties = pika.BasicProperties(message_id="m", headers={"penstock-message": f'{{"due":{due},"sent":7}}'})
            connection.channel().basic_publish("", f"{queues.settings.prefix}emails", b"a", properties)
        assert until(lambda: queue.state().ready == 1, 30)
        received = queue.receive(ANNA)
        if SystemClock().now() < due:
            assert received == []
            return due
        ack(queue, received or take(queue, 1))
        return None  # a busy machine: it did not come early

    due = early(4) or early(25)
    assert due is not None
    [delivery] = take(queue, 1)
    assert SystemClock().now() >= due
    assert (delivery.attempt, delivery.sent) == (1, 7)


def test_a_queue_that_drops_its_oldest_does_not_lend_what_expired(queues: RabbitQueues) -> None:
    queue = queues.create(QueueSpec("emails", limit=Limit("drop-oldest", 5)))
    queue.send([Message(b"a", "a", ttl=timedelta(milliseconds=1)), Message(b"b", "b")])
    assert until(lambda: [d.message.id for d in queue.receive(ANNA)] == ["b"], 30)
    [letter] = take(queues.queue("emails.dead"), 1)
    said = dead_letter(letter.message)
    assert said is not None
    assert (letter.message.id, said.reason) == ("a", "nobody took it in time")


def test_what_cannot_be_buried_now_stays_and_is_buried_later(
    rabbitmq_server: RabbitServer, url: str, queues: RabbitQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.queue.rabbitmq.send.copier.PATIENCE", 0.2)
    queue = queues.create(QueueSpec("emails", tries=1))
    queue.send([Message(b"", "poison")])
    with RabbitQueues(url) as mine:
        take(mine.queue("emails"), 1)
    assert until(lambda: queue.state().ready == 1, 30)
    with alarm(rabbitmq_server):
        assert queue.receive(ANNA) == []
        assert until(lambda: queue.state().ready == 1, 30)
    assert until(lambda: not queue.receive(ANNA) and queue.state().ready == 0, 30)
    assert [d.message.id for d in take(queues.queue("emails.dead"), 1)] == ["poison"]


def test_a_settlement_that_the_broker_does_not_take_leaves_the_message_where_it_was(
    rabbitmq_server: RabbitServer, queues: RabbitQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.queue.rabbitmq.send.copier.PATIENCE", 0.2)
    queue = queues.create(QueueSpec("emails"))
    queue.send([Message(b"", "a")])
    [held] = take(queue, 1)
    with alarm(rabbitmq_server), pytest.raises(Full):
        queue.settle([Settlement(held.receipt, "reject")])
    assert until(lambda: list(queue.settle([Settlement(held.receipt, "reject")])) == [], 30)
    letters = take(queues.queue("emails.dead"), 1)
    assert [letter.message.id for letter in letters] == ["a"]


# Restarts


def test_a_broker_that_is_killed_loses_nothing_that_was_sent(rabbitmq_server: RabbitServer, queues: RabbitQueues) -> None:
    """FAULTS row 50."""
    queue = queues.create(QueueSpec("emails"))
    queue.send([Message(b"", f"m-{n}") for n in range(100)])
    held = take(queue, 10)
    acked = take(queue, 10)
    assert ack(queue, acked) == []
    rabbitmq_server.flush()
    rabbitmq_server.kill()
    rabbitmq_server.start()
    assert sorted(ack(queue, held)) == sorted(delivery.receipt for delivery in held)
    taken = take(queue, 90)
    assert {d.message.id for d in taken} == {f"m-{n}" for n in range(100)} - {d.message.id for d in acked}
    assert queue.send([Message(b"", "after")]) == ["after"]


def test_a_sender_waits_for_a_broker_that_is_restarted(rabbitmq_server: RabbitServer, queues: RabbitQueues) -> None:
    queue = queues.create(QueueSpec("emails"))
    queue.send([Message(b"", "before")])
    rabbitmq_server.stop()
    thread, told = in_thread(lambda: queue.send([Message(b"", "meanwhile")]))
    rabbitmq_server.start()
    thread.join()
    assert told == [["meanwhile"]]
    assert {delivery.message.id for delivery in take(queue, 2)} == {"before", "meanwhile"}


def test_a_broker_that_stays_away_is_told_with_its_address_and_no_password(monkeypatch: pytest.MonkeyPatch, proxy: Proxy) -> None:
    monkeypatch.setenv("RABBIT_PASSWORD", "tip-top-secret")
    proxy.__exit__(None, None, None)
    url = f"amqp://shop@127.0.0.1:{proxy.port}?password=env:RABBIT_PASSWORD&patience=1"
    with pytest.raises(LogError, match=f"RabbitMQ at 127.0.0.1:{proxy.port} cannot be used") as caught:
        RabbitQueues(url).names()
    assert "tip-top-secret" not in str(caught.value)


def test_a_broker_that_dies_while_it_is_asked_is_asked_again() -> None:
    """Its client takes that for a protocol that the broker does not speak."""
    asked, enough = list[str](), threading.Event()

    def reset() -> None:
        while not enough.is_set():
            with suppress(TimeoutError):
                connection, (host, _) = server.accept()
                connection.recv(8)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.close()  # with a reset, as the system does it for a process that was killed
                asked.append(host)

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        thread, _ = in_thread(reset)
        url = f"amqp://127.0.0.1:{server.getsockname()[1]}?patience=1"
        with RabbitQueues(url) as queues, pytest.raises(LogError, match="cannot be used"):
            queues.names()
        enough.set()
        thread.join()
    assert len(asked) > 1


def test_a_user_that_is_not_let_in_is_told_at_once(monkeypatch: pytest.MonkeyPatch, rabbitmq_server: RabbitServer) -> None:
    monkeypatch.setenv("RABBIT_PASSWORD", "tip-top-secret")
    for where in (f"shop@{rabbitmq_server.address}?password=env:RABBIT_PASSWORD", f"{rabbitmq_server.address}/nowhere"):
        with pytest.raises(LogError, match="does not let user") as caught:
            RabbitQueues(f"amqp://{where}").names()
        assert "tip-top-secret" not in str(caught.value)


# Leases


def test_receipts_of_a_broken_connection_are_lost(queues: RabbitQueues, proxy: Proxy) -> None:
    queues.create(QueueSpec("emails")).send([Message(b"a"), Message(b"b")])
    with through(proxy, queues) as shaky:
        queue = shaky.queue("emails")
        first = take(queue, 2)
        proxy.cut()
        assert until(lambda: queue.state().lent == 0, 30)
        assert ack(queue, first) == [delivery.receipt for delivery in first]
        again = take(queue, 2)
        assert [(d.message.body, d.attempt) for d in again] == [(b"a", 2), (b"b", 2)]
        assert ack(queue, again) == []


def test_a_message_that_breaks_its_connections_is_dead_after_its_last_try(url: str, queues: RabbitQueues) -> None:
    queue = queues.create(QueueSpec("emails", tries=2))
    queue.send([Message(b"poison", "p"), Message(b"good")])
    for attempt in (1, 2):
        with RabbitQueues(url) as mine:
            [poison] = take(mine.queue("emails"), 1)
            assert (poison.message.id, poison.attempt) == ("p", attempt)
    assert [d.message.body for d in take(queue, 1)] == [b"good"]
    [letter] = take(queues.queue("emails.dead"), 1)
    said = dead_letter(letter.message)
    assert said is not None
    assert (letter.message.id, said.count, said.reason) == ("p", 2, "its lease ran out")


def test_heartbeats_are_answered_while_nobody_calls(url: str, queues: RabbitQueues) -> None:
    queues.create(QueueSpec("emails")).send([Message(b"a")])
    with RabbitQueues(f"{url}&heartbeat=2") as mine:
        queue = mine.queue("emails")
        held = take(queue, 1)
        assert not until(lambda: queues.queue("emails").state().ready == 1, 7)  # longer than the silence that ends a connection
        assert ack(queue, held) == []


def test_many_consumers_do_not_keep_a_channel_each(queues: RabbitQueues) -> None:
    queue = queues.create(QueueSpec("emails"))
    queue.send([Message(b"%d" % n) for n in range(100)])
    for number in range(100):
        assert ack(queue, take(queue, 1, Consumer(f"consumer {number}"))) == []
    assert queue.state().ready == 0


def test_both_sides_of_a_fork_use_a_queue(queues: RabbitQueues) -> None:
    queue = queues.create(QueueSpec("emails"))
    queue.send([Message(b"before")])
    child = os.fork()
    if not child:
        try:
            queue.send([Message(b"from the child")])
            os._exit(0 if queues.names() == ["emails", "emails.dead"] else 1)
        finally:
            os._exit(2)
    queue.send([Message(b"from the parent")])
    assert os.waitpid(child, 0)[1] == 0
    found = take(queue, 3)
    assert {delivery.message.body for delivery in found} == {b"before", b"from the child", b"from the parent"}
    assert ack(queue, found) == []


def test_a_closed_broker_can_be_opened_again(url: str, queues: RabbitQueues) -> None:
    queues.create(QueueSpec("emails"))
    mine = RabbitQueues(url)
    assert mine.names() == ["emails", "emails.dead"]
    mine.close()
    mine.close()
    assert mine.names() == ["emails", "emails.dead"]
    mine.close()
