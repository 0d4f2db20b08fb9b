"""A queue as users hold it: sending, taking, settling."""

import signal
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import Binding, Limit, Message, Queue, Reject
from penstock.errors import AlreadyThere, BadInput, BadTime, DiskFull, Full, LeaseLost, Unroutable
from penstock.log.groups.leases import ManualClock
from penstock.queue.client.prefetch import Prefetch
from penstock.queue.message import LeasedMessage
from penstock.queue.port import Consumer
from unit.queue.conftest import Make
from waiting import until


def bodies(queue: Queue, most: int = 100) -> list[bytes]:
    """All that is ready, taken and done."""
    with queue.consumer(prefetch=most, auto=True) as consumer:
        return [message.body for message in consumer.receive(most)]


def test_bytes_text_and_dicts_come_out_as_they_went_in(emails: Queue) -> None:
    for body in (b"\xff\x00", "grüße", {"to": "ann", "n": 1}):
        assert emails.send(body)
    with emails.consumer() as consumer:
        first, second, third = consumer.receive(10)
        assert first.body == b"\xff\x00"
        assert second.text == "grüße"
        assert third.json() == {"to": "ann", "n": 1}
        with pytest.raises(BadInput, match="is not text"):
            _ = first.text
        with pytest.raises(BadInput, match="is not JSON"):
            second.json()


def test_a_message_knows_how_it_came(emails: Queue) -> None:
    before = datetime.now(UTC)
    id = emails.send("x", id="m-1", key="ann", headers={"trace": "7", "raw": b"\x01"}, priority=3, route="mail.new")
    assert id == "m-1"
    with emails.consumer() as consumer:
        [message] = consumer.receive()
        assert (message.id, message.key, message.priority, message.route) == ("m-1", "ann", 3, "mail.new")
        assert message.headers == {"trace": b"7", "raw": b"\x01"}
        assert message.attempt == 1
        assert before - timedelta(seconds=1) <= message.sent <= datetime.now(UTC)
        assert emails.name in message.origin
        assert message.dead is None
        message.nack()
        [message] = consumer.receive(wait="10 seconds")
        assert message.attempt == 2


def test_many_messages_go_in_one_order_and_have_ids_of_their_own(emails: Queue) -> None:
    ids = emails.send_many([{"n": 1}, "2", Message(b"3", id="mine")], route="a.b")
    assert len(set(ids)) == 3
    assert ids[2] == "mine"
    assert [message.route for message in emails.peek()] == ["a.b", "a.b", ""]
    assert bodies(emails) == [b'{"n":1}', b"2", b"3"]
    assert emails.send_many(str(n) for n in range(2_500)) != []
    assert bodies(emails, 5_000) == [str(n).encode() for n in range(2_500)]
    with pytest.raises(BadInput, match="cannot have one id"):
        emails.send_many(["a", "b"], id="same")


def test_a_delay_and_a_time_to_live_are_written_as_text(emails: Queue) -> None:
    emails.send("later", delay="1 hour")
    emails.send("soon over", ttl="1 ms")
    assert until(lambda: emails.state().ready == 0)
    assert bodies(emails) == []
    assert emails.state().delayed == 1
    [letter] = emails.dead_letters.peek()
    assert letter.dead
    assert letter.dead.reason == "nobody took it in time"
    with pytest.raises(BadTime):
        emails.send("x", delay="soon")


def test_a_loop_waits_for_messages_and_ends_when_it_is_stopped(emails: Queue) -> None:
    seen: list[str] = []
    with emails.consumer() as consumer:

        def read() -> None:
            for message in consumer:
                with message:
                    seen.append(message.text)

        reader = threading.Thread(target=read)
        reader.start()
        for n in range(5):
            emails.send(str(n))
            assert until(lambda: len(seen) == n + 1)  # noqa: B023
        consumer.stop()
        reader.join(60)
        assert not reader.is_alive()
    assert seen == ["0", "1", "2", "3", "4"]
    assert emails.state().counts["acked"] == 5


def test_receive_waits_as_long_as_it_is_told_and_no_longer_than_needed(emails: Queue) -> None:
    with emails.consumer() as consumer:
        assert consumer.receive() == []
        assert consumer.receive(wait="20 ms") == []
        sender = threading.Timer(0.02, lambda: emails.send("x"))
        sender.start()
        assert [message.text for message in consumer.receive(wait="1 minute")] == ["x"]
        sender.join()


def test_a_message_is_lent_to_one_consumer_at_a_time_and_prefetch_is_the_most_it_holds(emails: Queue) -> None:
    emails.send_many(str(n) for n in range(5))
    with emails.consumer(prefetch=3) as one, emails.consumer(prefetch=3) as other:
        assert [m.text for m in one.receive(10)] == ["0", "1", "2"]
        assert one.receive(10) == []
        assert [m.text for m in other.receive(10)] == ["3", "4"]
        assert [held.messages for held in sorted(emails.state().holders, key=lambda held: -held.messages)] == [3, 2]


def test_leaving_a_consumer_gives_back_what_is_not_settled_and_only_what_was_handed_out_counts_as_a_try(emails: Queue) -> None:
    emails.send_many(["done", "in hand", "never seen"])
    with emails.consumer() as consumer:
        loop = iter(consumer)
        next(loop).ack()
        assert next(loop).text == "in hand"
    state = emails.state()
    assert (state.ready, state.lent) == (2, 0)
    with emails.consumer() as consumer:
        assert [(m.text, m.attempt) for m in consumer.receive(10)] == [("in hand", 2), ("never seen", 1)]


def test_an_exception_that_leaves_a_message_gives_it_back_and_passes_on(emails: Queue) -> None:
    emails.send("x")
    with emails.consumer() as consumer:
        with pytest.raises(ValueError, match="no such address"), consumer.receive()[0]:
            raise ValueError("no such address")
        with consumer.receive(wait="10 seconds")[0] as message:
            assert message.attempt == 2
    assert emails.state().counts["acked"] == 1


def test_reject_goes_straight_to_the_dead_letters_with_its_reason(emails: Queue) -> None:
    emails.send_many(["a", "b"])
    with emails.consumer() as consumer:
        first, second = consumer.receive(2)
        first.reject("not wanted")
        with pytest.raises(Reject), second:
            raise Reject("never wanted")
    letters = emails.dead_letters.peek()
    assert [(m.text, m.dead and m.dead.reason, m.dead and m.dead.queue) for m in letters] == [
        ("a", "not wanted", emails.name),
        ("b", "never wanted", emails.name),
    ]


def test_a_message_that_is_released_was_not_tried(emails: Queue) -> None:
    emails.send("x")
    with emails.consumer(name="reader") as consumer:
        assert consumer.name == "reader"
        for _ in range(7):
            [message] = consumer.receive()
            message.release()
        assert [message.attempt for message in consumer.receive()] == [1]


def test_the_error_of_the_work_is_not_hidden_by_that_of_giving_back(emails: Queue, leases: ManualClock) -> None:
    emails.send("x")

    def refuse(settlements: object) -> None:
        raise DiskFull("the disk is full")

    def work() -> None:
        with emails.consumer(lease="1 second") as consumer:
            [message] = consumer.receive()
            leases.advance(1)
            with pytest.raises(ValueError), message:
                raise ValueError("the lease is lost, too")
            consumer.receive()
            emails.port.settle = refuse  # type: ignore[assignment, method-assign]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()


def test_a_message_is_settled_once(emails: Queue) -> None:
    emails.send("x")
    with emails.consumer() as consumer:
        [message] = consumer.receive()
        with message:
            message.ack()
        with pytest.raises(BadInput, match="settled already: ack"):
            message.nack()


def test_a_lease_that_ran_out_is_told_and_the_message_is_somebody_elses(emails: Queue, leases: ManualClock) -> None:
    emails.send("x", id="m-1")
    with emails.consumer(lease="10 seconds") as slow, emails.consumer() as quick:
        [mine] = slow.receive()
        leases.advance(10)
        [theirs] = quick.receive()
        with pytest.raises(LeaseLost, match="lease on message m-1"):
            mine.ack()
        with pytest.raises(BadInput, match="was lost"):
            mine.extend()
        assert theirs.attempt == 2
        theirs.ack()
    assert emails.state().counts["acked"] == 1


def test_many_are_acked_in_one_go_and_those_that_were_lost_are_told(emails: Queue, leases: ManualClock) -> None:
    emails.send_many(["a", "b"])
    with emails.consumer(lease="10 seconds") as consumer, emails.consumer() as other:
        first, second = consumer.receive(2)
        second.extend("1 hour")
        leases.advance(10)
        [again] = other.receive(10)
        assert again.text == "a"
        with pytest.raises(LeaseLost, match="the other 1 are settled") as told:
            consumer.ack([first, second])
        assert "the lease on message" in told.value.what
        other.ack([again])
    assert emails.state().counts["acked"] == 2


def test_extending_begins_the_lease_of_the_consumer_anew(emails: Queue, leases: ManualClock) -> None:
    emails.send("x")
    with emails.consumer(lease="1 minute") as consumer, emails.consumer() as other:
        [message] = consumer.receive()
        for _ in range(5):
            leases.advance(50)
            message.extend()
        assert other.receive() == []
        message.ack()


def test_what_is_borrowed_ahead_is_renewed_before_it_is_handed_out(emails: Queue, leases: ManualClock) -> None:
    emails.send_many(["a", "b", "c"])
    now = [0.0]
    prefetch = Prefetch(emails.port, Consumer("me", lease=timedelta(seconds=10)), False, lambda: now[0])
    prefetch.fill(10)
    assert [message.text for message in prefetch.pick(1, LeasedMessage)] == ["a"]
    now[0], _ = 6.0, leases.advance(6)
    assert prefetch.pick(10, LeasedMessage) == []
    prefetch.fill(10)
    leases.advance(6)
    [b, c] = prefetch.pick(10, LeasedMessage)
    prefetch.settle([(b, b.settlement("ack")), (c, c.settlement("ack"))])
    assert emails.state().counts["acked"] == 2


def test_what_was_lost_while_it_waited_is_not_handed_out(emails: Queue, leases: ManualClock) -> None:
    emails.send_many(["a", "b"])
    now = [0.0]
    prefetch = Prefetch(emails.port, Consumer("me", lease=timedelta(seconds=10)), False, lambda: now[0])
    prefetch.fill(10)
    leases.advance(10)
    with emails.consumer() as other:
        assert [message.text for message in other.receive(1)] == ["a"]
        now[0] = 10.0
        prefetch.fill(10)
        assert prefetch.pick(10, LeasedMessage) == []  # b is not lent to anybody else, and yet not ours any more
        prefetch.fill(10)
        assert [message.text for message in prefetch.pick(10, LeasedMessage)] == ["b"]


def test_what_is_handed_out_changes_under_the_guard_alone_so_that_it_can_be_given_back(emails: Queue) -> None:
    emails.send_many(["a", "b"])
    prefetch = Prefetch(emails.port, Consumer("me"), False)

    class Guarded(dict[str, LeasedMessage]):
        def pop(self, *key: Any) -> Any:
            assert prefetch._guard.locked()  # else whoever gives back at this moment finds it changing
            return super().pop(*key)

    prefetch._out = Guarded()
    prefetch.fill(10)
    a, _ = prefetch.pick(10, LeasedMessage)
    prefetch.settle([(a, a.settlement("ack"))])
    prefetch.give_back()
    state = emails.state()
    assert (state.counts["acked"], state.ready + (state.delayed or 0), state.lent) == (1, 1, 0)


def test_with_auto_a_message_is_done_as_it_is_handed_out_and_no_other(emails: Queue) -> None:
    emails.send_many(["a", "b"])
    with emails.consumer(auto=True) as consumer:
        for message in consumer:
            with message:
                assert message.text == "a"
            with pytest.raises(BadInput, match="done as it is handed out"):
                message.ack()
            break
    assert emails.state().ready == 1
    assert bodies(emails) == [b"b"]


def test_settings_are_written_as_text_and_wrong_ones_are_told(make: Make) -> None:
    queue = make("encode", lease="10 minutes", retry="5 seconds", tries=3, ordered=True, bindings=["a.*", Binding("b.#")])
    assert queue.spec.lease == timedelta(minutes=10)
    assert queue.spec.retry == timedelta(seconds=5)
    assert [binding.route for binding in queue.spec.bindings] == ["a.*", "b.#"]
    with pytest.raises(AlreadyThere):
        make("encode")
    with pytest.raises(BadInput, match="no setting speed"):
        make("other", speed=3)
    with pytest.raises(BadTime):
        make("other", lease="long")


def test_ordered_parts_are_lent_one_message_of_a_key_at_a_time(make: Make) -> None:
    videos = make("videos", ordered=True)
    for n in range(3):
        for key in ("a", "b"):
            videos.send(f"{key}{n}", key=key)
    with videos.consumer() as one, videos.consumer() as other:
        assert [m.text for m in one.receive(1)] == ["a0"]
        assert [m.text for m in other.receive(10)] == ["b0"]


def test_every_queue_of_a_source_gets_what_its_bindings_match(make: Make) -> None:
    packing = make("packing", source="orders", bindings=["orders.*.eu"])
    audit = make("audit", source="orders")
    packing.send("1", route="orders.new.eu")
    packing.send("2", route="orders.new.us")
    assert bodies(packing) == [b"1"]
    assert bodies(audit) == [b"1", b"2"]


def test_a_message_that_no_queue_takes_is_told(make: Make) -> None:
    packing = make("packing", source="orders", bindings=["orders.*.eu"])
    with pytest.raises(Unroutable, match=r"no queue of orders.* takes"):
        packing.send("2", route="orders.new.us")


def test_a_full_queue_pushes_back_until_there_is_room_or_the_time_is_over(make: Make) -> None:
    emails = make("emails", limit=Limit("push-back", messages=2))
    emails.send_many(["a", "b"])
    with pytest.raises(Full, match="is full"):
        emails.send("c", wait="10 ms")
    taker = threading.Timer(0.02, lambda: bodies(emails, 1))
    taker.start()
    assert emails.send("c", wait="1 minute")
    taker.join()
    assert emails.state().counts["refused"] == 1


def test_a_queue_that_drops_says_so(make: Make) -> None:
    newest = make("newest", limit=Limit("drop-newest", messages=2))
    assert [id is None for id in newest.send_many(["a", "b", "c"])] == [False, False, True]
    oldest = make("oldest", limit=Limit("drop-oldest", messages=2))
    oldest.send_many(["a", "b", "c"])
    assert bodies(newest) == [b"a", b"b"]
    assert bodies(oldest) == [b"b", b"c"]
    assert newest.state().counts["dropped"] == oldest.state().counts["dropped"] == 1


def test_what_cannot_be_sent_is_told(emails: Queue) -> None:
    for body, said in ((3, "cannot be int"), ({"x": object()}, "written as JSON"), ([1], "cannot be list")):
        with pytest.raises(BadInput, match=said):
            emails.send(body)  # type: ignore[arg-type]
    assert emails.purge() == 0


def test_a_signal_may_stop_a_consumer(emails: Queue) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    with emails.consumer() as consumer:
        signal.signal(signal.SIGUSR1, lambda *_: consumer.stop())
        try:
            threading.Timer(0.02, lambda: signal.raise_signal(signal.SIGUSR1)).start()
            assert list(consumer) == []
        finally:
            signal.signal(signal.SIGUSR1, before)
