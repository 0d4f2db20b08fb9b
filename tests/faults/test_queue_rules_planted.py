"""Is the harness of queues worth its word? Each test plants one bug in the rules and shows that the machine catches it."""

from collections.abc import Iterable, Iterator, Sequence

import pytest

from faults.planted import WallLeases, caught_by
from faults.queue_brokers import Broker
from faults.queue_machine import QueueMachine
from penstock.log.groups.leases import ManualClock
from penstock.queue import memory
from penstock.queue.memory import MemoryQueue, MemoryQueues
from penstock.queue.port import Consumer, Message, QueueSpec, QueuesPort
from penstock.queue.state import item as items
from penstock.queue.state import machine as rules
from penstock.queue.state import transitions
from penstock.queue.state.clock import Now
from penstock.queue.state.item import LEASED, READY, Item
from penstock.queue.state.machine import StateMachine

pytestmark = pytest.mark.faults
Patch = pytest.MonkeyPatch


def caught(machine: type[QueueMachine] = QueueMachine, examples: int = 2_000) -> bool:
    return caught_by(machine, examples, steps=40)


def test_the_rules_without_a_planted_bug_pass() -> None:
    assert not caught(examples=50)


# Leases


@pytest.mark.long
def test_an_ack_of_somebody_who_lost_the_message_is_caught(monkeypatch: Patch) -> None:
    def unchecked(self: StateMachine, receipt: str, now: Now) -> Item | None:
        item = self.items.get(int(receipt.split("-")[0]))
        return item if item and item.status == LEASED else None

    monkeypatch.setattr(StateMachine, "leased_under", lambda machine, receipts, now: [unchecked(machine, r, now) for r in receipts])
    assert caught()


def test_an_ack_of_what_was_given_back_is_caught(monkeypatch: Patch) -> None:
    def unchecked(self: StateMachine, receipt: str, now: Now) -> Item | None:
        item = self.items.get(int(receipt.split("-")[0]))
        if item and item.status == READY and receipt == f"{item.position}-{item.token}":
            self.take("thief", 1, now.beat + 1)
        return item if item and item.status == LEASED and receipt == f"{item.position}-{item.token}" else None

    monkeypatch.setattr(StateMachine, "leased_under", lambda machine, receipts, now: [unchecked(machine, r, now) for r in receipts])
    assert caught()


@pytest.mark.long
def test_a_lease_that_never_runs_out_is_caught(monkeypatch: Patch) -> None:
    real = StateMachine.advance
    monkeypatch.setattr(StateMachine, "advance", lambda self, now: real(self, now._replace(beat=0)))
    assert caught()


@pytest.mark.long
def test_an_extension_that_is_forgotten_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(StateMachine, "extend", lambda self, item, until: None)
    assert caught()


@pytest.mark.long
def test_a_lease_that_still_runs_out_when_it_was_extended_is_caught(monkeypatch: Patch) -> None:
    def by_token(items: Iterable[Item], token: int, until: int) -> list[Item]:
        return [item for item in items if item.status == LEASED and item.token == token]

    monkeypatch.setattr(rules, "still_leased", by_token)
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
    real = transitions.lease

    def greedy(machine: StateMachine, spec: QueueSpec, consumer: Consumer, most: int, now: Now) -> object:
        return real(machine, spec, Consumer(consumer.name, 1_000, consumer.lease), most, now)

    monkeypatch.setattr(transitions, "lease", greedy)
    assert caught()


# Order


@pytest.mark.long
def test_a_message_that_comes_back_at_the_end_is_caught(monkeypatch: Patch) -> None:
    real = StateMachine.give_back

    def behind_all(self: StateMachine, item: Item, due: int, reason: str) -> None:
        self.number += 1
        item.number = self.number
        real(self, item, due, reason)

    monkeypatch.setattr(StateMachine, "give_back", behind_all)
    assert caught()


def test_a_key_that_is_lent_twice_is_caught(monkeypatch: Patch) -> None:
    real = StateMachine._admit_keyed

    def beside(self: StateMachine, item: Item, key: str) -> None:
        real(self, item, key)
        if item.status == items.BLOCKED:
            self._schedule(item)

    monkeypatch.setattr(StateMachine, "_admit_keyed", beside)
    assert caught()


@pytest.mark.long
def test_a_key_that_stops_at_a_dead_letter_is_caught(monkeypatch: Patch) -> None:
    real = StateMachine._unblock

    def stuck(self: StateMachine, item: Item) -> None:
        if item.status == items.DYING:
            item.key = None
        real(self, item)

    monkeypatch.setattr(StateMachine, "_unblock", stuck)
    assert caught()


@pytest.mark.long
def test_a_priority_that_is_ignored_is_caught(monkeypatch: Patch) -> None:
    real = StateMachine._schedule

    def plain(self: StateMachine, item: Item) -> None:
        item.priority = 0
        real(self, item)

    monkeypatch.setattr(StateMachine, "_schedule", plain)
    assert caught()


@pytest.mark.long
def test_a_delay_that_is_ignored_is_caught(monkeypatch: Patch) -> None:
    real = StateMachine._schedule

    def at_once(self: StateMachine, item: Item) -> None:
        item.due = items.AT_ONCE
        real(self, item)

    monkeypatch.setattr(StateMachine, "_schedule", at_once)
    assert caught()


# Dying


@pytest.mark.long
def test_one_try_too_many_is_caught(monkeypatch: Patch) -> None:
    real = StateMachine.__init__
    monkeypatch.setattr(StateMachine, "__init__", lambda self, ordered=False, tries=5: real(self, ordered, tries + 1))
    assert caught()


@pytest.mark.long
def test_an_expired_message_that_is_lent_is_caught(monkeypatch: Patch) -> None:
    real = StateMachine.admit

    def for_ever(self: StateMachine, admitted: Sequence[Item]) -> None:
        for item in admitted:
            item.expires = items.FOREVER
        real(self, admitted)

    monkeypatch.setattr(StateMachine, "admit", for_ever)
    assert caught()


@pytest.mark.long
def test_a_message_that_expires_in_somebodys_hands_is_caught(monkeypatch: Patch) -> None:
    real = StateMachine.advance

    def hasty(self: StateMachine, now: Now) -> bool:
        rebooted = real(self, now)
        for item in list(self.items.values()):
            if item.status == LEASED and item.expires and item.expires <= now.wall:
                self.reject(item, rules.EXPIRED)
        return rebooted

    monkeypatch.setattr(StateMachine, "advance", hasty)
    assert caught()


@pytest.mark.long
def test_a_dead_letter_without_its_reason_is_caught(monkeypatch: Patch) -> None:
    real = memory.as_dead_letter
    monkeypatch.setattr(memory, "as_dead_letter", lambda m, queue, origin, count, reason, at: real(m, queue, origin, count, "", at))
    assert caught()


def test_a_dead_letter_that_is_lost_is_caught(monkeypatch: Patch) -> None:
    real = MemoryQueue._store_dead_letters

    def careless(self: MemoryQueue, now: Now) -> None:
        for position in list(self.machine.dying)[1:]:
            self._forget([self.machine.items[position]], "dead")
        real(self, now)

    monkeypatch.setattr(MemoryQueue, "_store_dead_letters", careless)
    assert caught()


@pytest.mark.long
def test_a_delivery_that_nobody_began_with_and_that_counts_is_caught(monkeypatch: Patch) -> None:
    real = transitions._give_back
    monkeypatch.setattr(transitions, "_give_back", lambda machine, item, due, reason, tried: real(machine, item, due, reason, True))
    assert caught()


# Overload, purging, routes


@pytest.mark.long
def test_a_lent_message_that_makes_room_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(StateMachine, "oldest", lambda self: iter(list(self.items.values())))
    assert caught()


@pytest.mark.long
def test_a_purge_of_what_is_lent_is_caught(monkeypatch: Patch) -> None:
    real = StateMachine.waiting

    def all_there(self: StateMachine) -> Iterator[Item]:
        return iter([*real(self), *(item for item in self.items.values() if item.status == LEASED)])

    monkeypatch.setattr(StateMachine, "waiting", all_there)
    assert caught()


@pytest.mark.long
def test_half_a_send_into_a_full_queue_is_caught(monkeypatch: Patch) -> None:
    def half(self: MemoryQueue, messages: Sequence[Message], waited: float) -> None:
        self.put([m for m in messages if self.takes(m)][:1], self.advance())
        raise memory.full(self.limited, waited)

    monkeypatch.setattr(MemoryQueue, "refuse", half)
    assert caught()


@pytest.mark.long
def test_what_is_dropped_at_the_door_and_not_told_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(transitions, "count_dropped", lambda machine, count: [])
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
