"""What queues must pass on sending, lending and settling: a part of the suite."""

import threading

from penstock.queue.port import Consumer, Message, QueuePort, QueuesPort, Settlement
from penstock.testing.contracts.queue.bench import QueueBench, bodies, letters, needs


class LendingContract(QueueBench):
    """A message is lent to one consumer at a time, until one of them acknowledges."""

    # What comes out is what went in

    def test_a_message_comes_out_as_it_went_in_and_is_gone_once_acknowledged(self, queue: QueuePort) -> None:
        sent = Message(b"hello", "m-1", "anna", {"tenant": b"a", "raw": bytes(range(256)), "empty": b""}, route="mail.new")
        assert list(queue.send([sent])) == ["m-1"]
        [lent] = self.take(queue)
        assert lent.message._replace(headers=dict(lent.message.headers)) == sent
        assert lent.receipt
        self.settle(queue, "ack", lent)
        assert self.none(queue)
        assert self.seen(queue, lambda state: state.lent == 0).ready == 0

    def test_bodies_may_be_empty_and_any_bytes_and_large(self, queue: QueuePort) -> None:
        sent = [b"", bytes(range(256)), b"\0", b"x" * (1 << 20)]
        queue.send([Message(body) for body in sent])
        assert bodies(self.take(queue, 4)) == sent

    def test_keys_and_ids_may_be_any_words(self, queue: QueuePort) -> None:
        queue.send([Message(b"1", "größe 1", "żółw 🐢"), Message(b"2", key=""), Message(b"3")])
        assert [d.message.key for d in self.take(queue, 3)] == ["żółw 🐢", "", None]

    def test_what_the_sender_does_to_the_headers_later_changes_nothing(self, queue: QueuePort) -> None:
        headers = {"a": b"1"}
        queue.send([Message(b"", headers=headers)])
        headers["a"] = b"2"
        assert dict(self.take(queue)[0].message.headers) == {"a": b"1"}

    def test_a_message_without_an_id_gets_one_of_its_own(self, queue: QueuePort) -> None:
        told = [*queue.send(letters(*"abc")), *queue.send([Message(b"d", "mine"), Message(b"e")])]
        assert told[3] == "mine"
        assert all(told)
        assert len(set(told)) == 5
        assert [d.message.id for d in self.take(queue, 5)] == told

    def test_two_messages_of_one_id_are_two_messages(self, queue: QueuePort) -> None:
        queue.send([Message(b"a", "same"), Message(b"b", "same")])
        queue.send([Message(b"c", "same")])
        assert bodies(self.take(queue, 3)) == [b"a", b"b", b"c"]

    def test_messages_come_in_the_order_they_were_sent(self, queue: QueuePort) -> None:
        for start in range(0, 60, 20):
            queue.send(letters(*map(str, range(start, start + 20))))
        assert bodies(self.take(queue, 60)) == [str(number).encode() for number in range(60)]

    def test_an_empty_queue_gives_nothing_and_nothing_can_be_sent_and_settled(self, queue: QueuePort) -> None:
        assert self.none(queue)
        assert list(queue.send([])) == []
        assert list(queue.settle([])) == []
        assert self.none(queue)

    # Who gets it

    def test_a_message_is_lent_to_one_consumer_at_a_time(self, queue: QueuePort) -> None:
        queue.send(letters("a", "b"))
        assert bodies([*self.take(queue, by="anna"), *self.take(queue, by="ben")]) == [b"a", b"b"]
        assert self.none(queue)

    def test_nobody_gets_more_than_asked_for_nor_than_its_prefetch_leaves(self, queue: QueuePort) -> None:
        queue.send(letters(*"abcdefgh"))
        first = self.take(queue, 2, prefetch=3)
        self.take(queue, 1, prefetch=3)
        assert not queue.receive(Consumer("anna", prefetch=3), 5)
        assert bodies(self.take(queue, 4, by="ben")) == [b"d", b"e", b"f", b"g"]
        self.settle(queue, "ack", first[0])
        assert bodies(self.take(queue, 1, prefetch=3)) == [b"h"]

    def test_threads_that_share_a_queue_get_each_message_once(self, queue: QueuePort) -> None:
        queue.send(letters(*map(str, range(200))))
        taken: list[list[bytes]] = [[] for _ in range(4)]

        def work(number: int) -> None:
            while deliveries := queue.receive(Consumer(f"worker {number}"), 7):
                self.settle(queue, "ack", *deliveries)
                taken[number] += bodies(deliveries)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rest = [body for mine in taken for body in mine]
        rest += bodies(self.take(queue, 200 - len(rest)))
        assert sorted(rest, key=int) == [str(number).encode() for number in range(200)]

    def test_without_acknowledgement_a_message_is_done_as_soon_as_it_is_handed_out(self, queue: QueuePort) -> None:
        queue.send(letters(*"abc"))
        taken = [*self.take(queue, 2, auto=True), *self.take(queue, auto=True)]
        assert bodies(taken) == [b"a", b"b", b"c"]
        assert list(queue.settle([Settlement(taken[0].receipt, "nack")])) == [taken[0].receipt]
        self.advance(4)
        assert self.none(queue)
        assert self.seen(queue, lambda state: state.lent == 0).ready == 0

    # What becomes of it

    def test_a_delivery_can_be_settled_once(self, queue: QueuePort) -> None:
        queue.send(letters("a", "b"))
        first, second = self.take(queue, 2)
        again = Settlement(first.receipt, "ack")
        assert list(queue.settle([again, Settlement(second.receipt, "ack"), again])) == [first.receipt]
        assert list(queue.settle([again, Settlement(second.receipt, "nack")])) == [first.receipt, second.receipt]
        assert self.none(queue)

    @needs("attempts")
    def test_what_is_given_back_is_lent_again_at_once_and_counts(self, queue: QueuePort) -> None:
        queue.send(letters("a"))
        [first] = self.take(queue)
        self.settle(queue, "nack", first)
        [second] = self.take(queue, by="ben")
        assert (first.attempt, second.attempt) == (1, 2)
        assert second.message == first.message
        assert second.receipt != first.receipt
        assert list(queue.settle([Settlement(first.receipt, "ack")])) == [first.receipt]
        self.settle(queue, "ack", second)

    @needs("old place")
    def test_what_is_given_back_stands_where_it_stood(self, queue: QueuePort) -> None:
        queue.send(letters(*"abcde"))
        taken = self.take(queue, 3)
        self.settle(queue, "nack", taken[2], taken[0])
        assert bodies(self.take(queue, 4)) == [b"a", b"c", b"d", b"e"]

    @needs("attempts", "untried")
    def test_a_delivery_that_nobody_began_with_does_not_count(self, queues: QueuesPort) -> None:
        queue = self.create(queues, tries=1)
        queue.send(letters("a"))
        for _ in range(3):
            [delivery] = self.take(queue)
            assert delivery.attempt == 1
            self.settle(queue, "nack", delivery, tried=False)
        self.settle(queue, "ack", *self.take(queue))

    @needs("delay")
    def test_what_is_given_back_rests_as_long_as_the_consumer_says(self, queue: QueuePort) -> None:
        queue.send(letters("a"))
        self.settle(queue, "nack", *self.take(queue), delay=2 * self.tick)
        self.advance(1)
        assert self.none(queue)
        self.advance(1.2)
        assert bodies(self.take(queue)) == [b"a"]

    @needs("delay")
    def test_what_is_given_back_rests_as_long_as_the_settings_say(self, queues: QueuesPort) -> None:
        queue = self.create(queues, retry=2 * self.tick)
        queue.send(letters("a", "b"))
        first, second = self.take(queue, 2)
        self.settle(queue, "nack", first)
        self.settle(queue, "nack", second, delay=0 * self.tick)
        assert bodies(self.take(queue)) == [b"b"]
        self.advance(1)
        assert self.none(queue)
        self.advance(1.2)
        assert bodies(self.take(queue)) == [b"a"]

    def test_one_call_settles_each_as_it_says(self, queue: QueuePort) -> None:
        queue.send(letters(*"abcd"))
        a, b, c, d = self.take(queue, 4)
        told = [Settlement(a.receipt, "nack"), Settlement(b.receipt, "ack"), Settlement(c.receipt, "reject")]
        assert list(queue.settle([*told, Settlement(d.receipt, "ack")])) == []
        assert bodies(self.take(queue)) == [b"a"]
        assert self.none(queue)
