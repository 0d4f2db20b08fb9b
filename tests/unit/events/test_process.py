"""Handlers of events issue their commands once, however often they see an event."""

import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.errors import NotFound
from penstock.events import Aggregate, Commands, EventStore, ProcessManager, Recorded
from penstock.log.consumer import records
from penstock.log.open import open_log
from penstock.queue.queue import Queue
from penstock.testing.contracts.events.samples import EVENTS, CheckedOut, ItemAdded


@dataclass(frozen=True)
class Ordered:
    cart: str


class Order(Aggregate):
    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.carts: list[str] = []

    def apply(self, event: Ordered) -> None:
        self.carts.append(event.cart)

    def place(self, cart: str) -> None:
        self.record(Ordered(cart))


class Shop:
    """Carts that are checked out become orders, and a line in a list."""

    def __init__(self, home: Path) -> None:
        self.log = open_log(home)
        self.carts = EventStore.open("carts", EVENTS, home=home)
        self.orders = EventStore.open("orders", [Ordered], home=home)
        self.manager = ProcessManager("ordering", self.carts, self.handle, self.log)
        self.fail_after = 99  # commands

    def handle(self, event: Recorded[object], commands: Commands) -> None:
        if isinstance(event.event, CheckedOut):
            issue = [
                lambda: commands.run(self.orders, Order, "order-of-today", lambda order: order.place(event.stream)),
                lambda: commands.append(self.orders, "list", [Ordered(event.stream)]),
            ]
            for number, command in enumerate(issue):
                if number == self.fail_after:
                    raise ConnectionError("the process dies here")
                command()


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path)
    for number in range(3):
        shop.carts.append(f"cart-{number}", [ItemAdded("A"), CheckedOut()], correlation=f"visit-{number}")
    return shop


def ordered(shop: Shop, stream: str) -> list[str]:
    return [e.event.cart for e in shop.orders.read(stream)]


def test_every_event_is_handled_once(shop: Shop) -> None:
    assert shop.manager.run(follow=False) == 6
    assert shop.manager.run(follow=False) == 0
    assert ordered(shop, "order-of-today") == ordered(shop, "list") == ["cart-0", "cart-1", "cart-2"]


@pytest.mark.parametrize("died", [0, 1])
def test_a_handler_that_dies_is_run_again_and_nothing_is_done_twice(shop: Shop, died: int) -> None:
    """G41: commands of an event take effect once."""
    shop.fail_after = died
    for _ in range(2):
        with pytest.raises(ConnectionError):
            shop.manager.run(follow=False)
    shop.fail_after = 99
    shop.manager.run(follow=False)
    assert ordered(shop, "order-of-today") == ordered(shop, "list") == ["cart-0", "cart-1", "cart-2"]


def test_an_event_that_is_handled_again_changes_nothing(shop: Shop) -> None:
    shop.manager.run(follow=False)
    for _ in range(2):
        shop.manager.handle("cart-1", 2)
    assert ordered(shop, "order-of-today") == ordered(shop, "list") == ["cart-0", "cart-1", "cart-2"]
    with pytest.raises(NotFound):
        shop.manager.handle("cart-1", 9)


def test_two_who_handle_the_same_event_at_once_do_it_once(shop: Shop) -> None:
    threads = [threading.Thread(target=shop.manager.handle, args=(f"cart-{n % 3}", 2)) for n in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ordered(shop, "order-of-today")) == sorted(ordered(shop, "list")) == ["cart-0", "cart-1", "cart-2"]


def test_commands_belong_to_the_conversation_of_their_event(shop: Shop) -> None:
    shop.manager.run(follow=False)
    cause = shop.carts.read("cart-0")[1]
    event = shop.orders.read("order-of-today")[0]
    assert (event.who, event.correlation, event.causation) == ("ordering", "visit-0", cause.id)


def test_a_consumer_reads_events_from_any_position_on(shop: Shop, tmp_path: Path) -> None:
    """A catch-up subscription."""
    found = [shop.carts.event_of(record) for record in records(open_log(tmp_path).topic("carts"), start=4)]
    assert [event for event in found if event] == shop.carts.read("cart-2")


def test_a_queue_hands_events_to_competing_consumers(shop: Shop, tmp_path: Path) -> None:
    queue = Queue.create("checkouts", source="carts", home=tmp_path)
    with queue.consumer(prefetch=10) as first, queue.consumer(prefetch=10) as second:
        got = [message.body for consumer in (first, second) for message in consumer.receive(3)]
    assert len(got) == 6
    assert sum(b'"CheckedOut"' in body for body in got) == 3
