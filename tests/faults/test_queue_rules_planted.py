"""Is the harness of queues worth its word? Each test plants one bug in the rules and shows that the machine catches it."""

from collections.abc import Iterable, Iterator, Sequence

import pytest

from faults.planted import WallLeases, caught_by
from faults.queue_brokers import Broker
from faults.queue_machine import QueueMachine
from penstock.log.groups.leases import ManualClock
from penstock.queue import memory
from penstock.queue.memory import MemoryQueue, MemoryQueues
from penstock.queue.on_log import commands
from penstock.queue.port import Consumer, Message, QueueSpec, QueuesPort
from penstock.queue.state import machine as book
from penstock.queue.state.machine import LENT, READY, Book, Item, Now

pytestmark = pytest.mark.faults
Patch = pytest.MonkeyPatch


def caught(machine: type[QueueMachine] = QueueMachine, examples: int = 2_000) -> bool:
    return caught_by(machine, examples, steps=40)


def test_the_rules_without_a_planted_bug_pass() -> None:
    assert not caught(examples=50)


# Leases


@pytest.mark.long
def test_an_ack_of_somebody_who_lost_the_message_is_caught(monkeypatch: Patch) -> None:
    def unchecked(self: Book, receipt: str, now: Now) -> Item | None:
        item = self.items.get(int(receipt.split("-")[0]))
        return item if item and item.where == LENT else None

    monkeypatch.setattr(Book, "of_receipts", lambda book, receipts, now: [unchecked(book, r, now) for r in receipts])
    assert caught()


def test_an_ack_of_what_was_given_back_is_caught(monkeypatch: Patch) -> None:
    def unchecked(self: Book, receipt: str, now: Now) -> Item | None:
        item = self.items.get(int(receipt.split("-")[0]))
        if item and item.where == READY and receipt == commands.receipt(item):
            self.take("thief", 1, now.beat + 1)
        return item if item and item.where == LENT and receipt == commands.receipt(item) else None

    monkeypatch.setattr(Book, "of_receipts", lambda book, receipts, now: [unchecked(book, r, now) for r in receipts])
    assert caught()


@pytest.mark.long
def test_a_lease_that_never_runs_out_is_caught(monkeypatch: Patch) -> None:
    real = Book.wake
    monkeypatch.setattr(Book, "wake", lambda self, now: real(self, now._replace(beat=0)))
    assert caught()


@pytest.mark.long
def test_an_extension_that_is_forgotten_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Book, "extend", lambda self, item, until: None)
    assert caught()


@pytest.mark.long
def test_a_lease_that_still_runs_out_when_it_was_extended_is_caught(monkeypatch: Patch) -> None:
    def by_token(items: Iterable[Item], token: int, until: int) -> list[Item]:
        return [item for item in items if item.where == LENT and item.token == token]

    monkeypatch.setattr(book, "_lent", by_token)
    assert caught()


class BrokerByTheWall(Broker):
    def open(self) -> QueuesPort:
        return MemoryQueues(self.wall, WallLeases(self.wall, ManualClock()))


class MachineByTheWall(QueueMachine):
    broker = BrokerByTheWall


@pytest.mark.long
def test_a_lease_that_runs_by_the_wall_is_caught() -> None:
    assert caught(MachineByTheWall)


@pytest.mark.long
def test_a_prefetch_that_is_not_kept_is_caught(monkeypatch: Patch) -> None:
    real = commands.lend

    def greedy(book: Book, spec: QueueSpec, consumer: Consumer, most: int, now: Now) -> object:
        return real(book, spec, Consumer(consumer.name, 1_000, consumer.lease), most, now)

    monkeypatch.setattr(commands, "lend", greedy)
    assert caught()


# Order


@pytest.mark.long
def test_a_message_that_comes_back_at_the_end_is_caught(monkeypatch: Patch) -> None:
    real = Book.give_back

    def behind_all(self: Book, item: Item, due: int, reason: str) -> None:
        self.number += 1
        item.number = self.number
        real(self, item, due, reason)

    monkeypatch.setattr(Book, "give_back", behind_all)
    assert caught()


def test_a_key_that_is_lent_twice_is_caught(monkeypatch: Patch) -> None:
    real = Book._line_up

    def beside(self: Book, item: Item, key: str) -> None:
        real(self, item, key)
        if item.where == book.BLOCKED:
            self._come_forward(item)

    monkeypatch.setattr(Book, "_line_up", beside)
    assert caught()


@pytest.mark.long
def test_a_key_that_stops_at_a_dead_letter_is_caught(monkeypatch: Patch) -> None:
    real = Book._unblock

    def stuck(self: Book, item: Item) -> None:
        if item.where == book.LEAVING:
            item.key = None
        real(self, item)

    monkeypatch.setattr(Book, "_unblock", stuck)
    assert caught()


@pytest.mark.long
def test_a_priority_that_is_ignored_is_caught(monkeypatch: Patch) -> None:
    real = Book._come_forward

    def plain(self: Book, item: Item) -> None:
        item.priority = 0
        real(self, item)

    monkeypatch.setattr(Book, "_come_forward", plain)
    assert caught()


@pytest.mark.long
def test_a_delay_that_is_ignored_is_caught(monkeypatch: Patch) -> None:
    real = Book._come_forward

    def at_once(self: Book, item: Item) -> None:
        item.due = book.AT_ONCE
        real(self, item)

    monkeypatch.setattr(Book, "_come_forward", at_once)
    assert caught()


# Dying


@pytest.mark.long
def test_one_try_too_many_is_caught(monkeypatch: Patch) -> None:
    real = Book.__init__
    monkeypatch.setattr(Book, "__init__", lambda self, ordered=False, tries=5: real(self, ordered, tries + 1))
    assert caught()


@pytest.mark.long
def test_an_expired_message_that_is_lent_is_caught(monkeypatch: Patch) -> None:
    real = Book.admit

    def for_ever(self: Book, items: Sequence[Item]) -> None:
        for item in items:
            item.expires = book.FOREVER
        real(self, items)

    monkeypatch.setattr(Book, "admit", for_ever)
    assert caught()


@pytest.mark.long
def test_a_message_that_expires_in_somebodys_hands_is_caught(monkeypatch: Patch) -> None:
    real = Book.wake

    def hasty(self: Book, now: Now) -> None:
        real(self, now)
        for item in list(self.items.values()):
            if item.where == LENT and item.expires and item.expires <= now.wall:
                self.set_aside(item, book.EXPIRED)

    monkeypatch.setattr(Book, "wake", hasty)
    assert caught()


@pytest.mark.long
def test_a_dead_letter_without_its_reason_is_caught(monkeypatch: Patch) -> None:
    real = memory.as_dead_letter
    monkeypatch.setattr(memory, "as_dead_letter", lambda m, queue, origin, count, reason, at: real(m, queue, origin, count, "", at))
    assert caught()


def test_a_dead_letter_that_is_lost_is_caught(monkeypatch: Patch) -> None:
    real = MemoryQueue._bury

    def careless(self: MemoryQueue, now: Now) -> None:
        for place in list(self.book.leaving)[1:]:
            self._forget([self.book.items[place]], "dead")
        real(self, now)

    monkeypatch.setattr(MemoryQueue, "_bury", careless)
    assert caught()


@pytest.mark.long
def test_a_delivery_that_nobody_began_with_and_that_counts_is_caught(monkeypatch: Patch) -> None:
    real = commands._back
    monkeypatch.setattr(commands, "_back", lambda book, item, due, reason, tried: real(book, item, due, reason, True))
    assert caught()


# Overload, purging, routes


@pytest.mark.long
def test_a_lent_message_that_makes_room_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Book, "oldest", lambda self: iter(list(self.items.values())))
    assert caught()


@pytest.mark.long
def test_a_purge_of_what_is_lent_is_caught(monkeypatch: Patch) -> None:
    real = Book.in_line

    def all_there(self: Book) -> Iterator[Item]:
        return iter([*real(self), *(item for item in self.items.values() if item.where == LENT)])

    monkeypatch.setattr(Book, "in_line", all_there)
    assert caught()


@pytest.mark.long
def test_half_a_send_into_a_full_queue_is_caught(monkeypatch: Patch) -> None:
    def half(self: MemoryQueue, messages: Sequence[Message], waited: float) -> None:
        self.put([m for m in messages if self.takes(m)][:1], self.wake())
        raise memory.full(self.limited, waited)

    monkeypatch.setattr(MemoryQueue, "refuse", half)
    assert caught()


@pytest.mark.long
def test_what_is_dropped_at_the_door_and_not_told_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(commands, "turn_away", lambda book, count: [])
    assert caught()


@pytest.mark.long
def test_a_message_that_goes_nowhere_without_a_word_is_caught(monkeypatch: Patch) -> None:
    real = MemoryQueues._parts

    def silent(self: MemoryQueues, queue: MemoryQueue, messages: Sequence[Message]) -> object:
        queues = self._sources[queue.spec.origin]
        return real(self, queue, [m for m in messages if any(q.takes(m) for q in queues)])

    monkeypatch.setattr(MemoryQueues, "_parts", silent)
    assert caught()


@pytest.mark.long
def test_a_queue_of_a_source_that_gets_the_part_of_another_is_caught(monkeypatch: Patch) -> None:
    real = MemoryQueue.takes
    monkeypatch.setattr(MemoryQueue, "takes", lambda self, m: real(self, m) or m.route == "b")
    assert caught()
