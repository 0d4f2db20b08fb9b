"""What queues must pass on sources, bindings and routes: a part of the suite."""

from collections.abc import Mapping

import pytest

from penstock.errors import Unroutable
from penstock.queue.port import Binding, Message, QueuePort, QueuesPort
from penstock.queue.state.routing import FOR
from penstock.testing.contracts.queue.bench import QueueBench, bodies, letters, needs


class RoutesContract(QueueBench):
    """Several queues of one source get all of it, or what their bindings match."""

    def bound(self, queues: QueuesPort, name: str, *bindings: Binding) -> QueuePort:
        return self.create(queues, name, source="orders", bindings=bindings)

    def test_every_queue_of_a_source_gets_all_of_it(self, queues: QueuesPort) -> None:
        mail, audit = self.bound(queues, "mail"), self.bound(queues, "audit")
        mail.send(letters("a", "b"))
        audit.send(letters("c"))
        taken = self.take(mail, 3)
        assert bodies(taken) == [b"a", b"b", b"c"]
        self.settle(mail, "ack", *taken[:2])
        assert bodies(self.take(audit, 3)) == [b"a", b"b", b"c"]

    def test_a_message_has_the_same_id_in_every_queue(self, queues: QueuesPort) -> None:
        mail, audit = self.bound(queues, "mail"), self.bound(queues, "audit")
        [given] = mail.send(letters("a"))
        assert [self.take(queue)[0].message.id for queue in (mail, audit)] == [given, given]

    def test_a_queue_can_be_the_source_of_others(self, queues: QueuesPort) -> None:
        orders, audit = self.create(queues, "orders"), self.bound(queues, "audit")
        orders.send(letters("a"))
        audit.send(letters("b"))
        assert bodies(self.take(orders, 2)) == bodies(self.take(audit, 2)) == [b"a", b"b"]

    def test_a_message_dies_in_one_queue_and_is_done_in_another(self, queues: QueuesPort) -> None:
        mail, audit = self.bound(queues, "mail"), self.bound(queues, "audit")
        mail.send(letters("a"))
        self.settle(mail, "reject", *self.take(mail))
        self.settle(audit, "ack", *self.take(audit))
        [(letter, said)] = self.dead_of(queues, "mail")
        assert (letter.body, said.queue) == (b"a", "mail")
        assert self.none(queues.queue("audit.dead"))

    @pytest.mark.parametrize(
        ("pattern", "matched"),
        [
            ("orders.new.eu", {"orders.new.eu"}),
            ("orders.*.eu", {"orders.new.eu", "orders.paid.eu"}),
            ("orders.#", {"orders", "orders.new.eu", "orders.new.us", "orders.paid.eu"}),
            ("#.eu", {"eu", "orders.new.eu", "orders.paid.eu"}),
            ("*", {"orders", "eu"}),
            ("orders.#.eu", {"orders.new.eu", "orders.paid.eu"}),
            ("#.#", {"", "orders", "eu", "orders.new.eu", "orders.new.us", "orders.paid.eu"}),
            ("#", {"", "orders", "eu", "orders.new.eu", "orders.new.us", "orders.paid.eu"}),
            ("", {""}),
        ],
    )
    def test_a_binding_matches_routes(self, queues: QueuesPort, pattern: str, matched: set[str]) -> None:
        rest, some = self.bound(queues, "rest"), self.bound(queues, "some", Binding(pattern))
        routes = ["", "orders", "eu", "orders.new.eu", "orders.new.us", "orders.paid.eu"]
        rest.send([Message(route.encode(), route=route) for route in routes])
        assert bodies(self.take(some, len(matched))) == [route.encode() for route in routes if route in matched]
        assert self.none(some)

    @needs("headers")
    @pytest.mark.parametrize(
        ("binding", "matched"),
        [
            (Binding(headers={"kind": b"new"}), ["new", "new eu"]),
            (Binding(headers={"kind": b"new", "zone": b"eu"}), ["new eu"]),
            (Binding(headers={"kind": b"new", "zone": b"eu"}, any_header=True), ["new", "new eu", "paid eu"]),
            (Binding("vip.#", {"kind": b"new"}), ["new eu"]),
            (Binding(headers={"zone": b""}), []),
            (Binding(any_header=True), ["new", "new eu", "paid eu", "none"]),
        ],
    )
    def test_a_binding_matches_headers(self, queues: QueuesPort, binding: Binding, matched: list[str]) -> None:
        rest, some = self.bound(queues, "rest"), self.bound(queues, "some", binding)
        sent: list[tuple[str, Mapping[str, bytes], str]] = [
            ("new", {"kind": b"new", "zone": b"us"}, ""),
            ("new eu", {"kind": b"new", "zone": b"eu"}, "vip.x"),
            ("paid eu", {"kind": b"paid", "zone": b"eu"}, "vip.y"),
            ("none", {}, ""),
        ]
        rest.send([Message(body.encode(), headers=headers, route=route) for body, headers, route in sent])
        assert bodies(self.take(some, len(matched))) == [body.encode() for body in matched] if matched else self.none(some)

    def test_a_message_that_two_bindings_match_comes_once(self, queues: QueuesPort) -> None:
        queue = self.bound(queues, "some", Binding("orders.#"), Binding("#.eu"))
        queue.send([Message(route.encode(), route=route) for route in ("orders.eu", "orders.us", "eu")])
        assert bodies(self.take(queue, 3)) == [b"orders.eu", b"orders.us", b"eu"]
        assert self.none(queue)

    @needs("all or nothing")
    def test_if_one_message_goes_nowhere_nothing_is_sent(self, queues: QueuesPort) -> None:
        eu, us = self.bound(queues, "eu", Binding("*.eu")), self.bound(queues, "us", Binding("*.us"))
        good = [Message(b"a", route="new.eu"), Message(b"b", route="new.us")]
        with pytest.raises(Unroutable, match=r"new\.au(?s:.*)nothing of this was sent"):
            eu.send([good[0], Message(b"c", route="new.au"), good[1]])
        with pytest.raises(Unroutable):
            eu.send([Message(b"d")])
        assert self.none(eu)
        assert self.none(us)
        eu.send(good)
        assert bodies([*self.take(eu), *self.take(us)]) == [b"a", b"b"]

    def test_a_message_that_goes_nowhere_is_refused(self, queues: QueuesPort) -> None:
        queue = self.bound(queues, "eu", Binding("*.eu"))
        with pytest.raises(Unroutable, match=r"new\.au"):
            queue.send([Message(b"c", route="new.au")])
        assert self.none(queue)

    def test_a_message_for_one_queue_goes_to_no_other_whatever_the_bindings_say(self, queues: QueuesPort) -> None:
        eu, rest = self.bound(queues, "eu", Binding("*.eu")), self.bound(queues, "rest")
        eu.send([Message(b"back", headers={FOR: b"eu"}, route="new.us")])
        assert bodies(self.take(eu)) == [b"back"]
        assert self.none(rest)
        with pytest.raises(Unroutable):
            eu.send([Message(b"back", headers={FOR: b"elsewhere"})])
