"""The rules of a queue, by themselves. What they come to is in the suite of queues; here is what only the state machine shows."""

import gc
import itertools
from collections.abc import Callable, Iterable

import pytest

from penstock.errors import BadInput
from penstock.queue.state.clock import Now
from penstock.queue.state.item import BLOCKED, DELAYED, DYING, GONE, LEASED, READY, Item
from penstock.queue.state.machine import StateMachine

FAR = 10**15


def now(beat: int = 0, wall: int = 0, boot: str = "boot") -> Now:
    return Now(boot, beat, wall)


def filled(*items: Item, ordered: bool = False, tries: int = 5) -> StateMachine:
    machine = StateMachine(ordered, tries)
    machine.advance(now())
    machine.admit(items)
    return machine


def plain(count: int, first: int = 1) -> list[Item]:
    return [Item(position, 10, 0) for position in range(first, first + count)]


def positions(items: Iterable[Item]) -> list[int]:
    return [item.position for item in items]


def test_what_is_lent_is_lent_under_a_token_of_its_own() -> None:
    machine = filled(*plain(3))
    first, second = machine.take("anna", 2, 50), machine.take("ben", 2, 60)
    assert (positions(first), positions(second)) == ([1, 2], [3])
    assert [item.token for item in (*first, *second)] == [1, 1, 2]
    assert dict(machine.held) == {"anna": 2, "ben": 1}
    assert not machine.take("cleo", 1, 70)


def test_a_receipt_counts_for_its_delivery_alone() -> None:
    machine = filled(*plain(1))
    [item] = machine.take("anna", 1, 50)
    mine = f"{item.position}-{item.token}"
    assert machine.leased_under([mine], now(49)) == [item]
    assert machine.leased_under([mine], now(50)) == [None]
    assert machine.leased_under([mine], now(0, boot="another")) == [None]
    assert machine.leased_under(["1-2"], now()) == [None]
    assert machine.leased_under(["2-1"], now()) == [None]
    machine.give_back(item, 0, "")
    assert machine.leased_under([mine], now()) == [None]
    machine.take("ben", 1, 50)
    assert machine.leased_under([mine], now()) == [None]


@pytest.mark.parametrize("text", ["", "-", "1", "1-", "-1", "1-x", "x-1", "1-²", "1-" + "9" * 5_000])
def test_what_is_no_receipt_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is no receipt"):
        StateMachine().leased_under([text], now())


def test_a_machine_that_starts_anew_frees_everything() -> None:
    machine = filled(*plain(3), tries=2)
    machine.take("anna", 2, FAR)
    machine.give_back(machine.items[1], 0, "")
    machine.take("anna", 1, FAR)
    machine.advance(now(boot="another"))
    assert dict(machine.held) == {}
    assert machine.dying == {1: "its lease ran out"}
    assert positions(machine.take("ben", 5, FAR)) == [2, 3]
    assert machine.leased_under(["2-1"], now(boot="another")) == [None]


def test_what_has_to_leave_takes_no_room_and_comes_back_to_nobody() -> None:
    machine = filled(*plain(3))
    machine.reject(machine.items[2], "why")
    assert machine.load() == (2, 20)
    assert machine.dying == {2: "why"}
    machine.reject(machine.items[2], "a better word")
    assert machine.dying == {2: "a better word"}
    assert positions(machine.take("anna", 5, FAR)) == [1, 3]
    machine.finish([machine.items[2]], "dead")
    assert (machine.dying, machine.counts["dead"], machine.load()) == ({}, 1, (2, 20))


def test_one_that_has_to_leave_holds_up_nobody_of_its_key() -> None:
    machine = filled(*(Item(position, 1, 0, key="k") for position in (1, 2, 3)), ordered=True)
    assert [item.status for item in machine.items.values()] == [READY, BLOCKED, BLOCKED]
    machine.reject(machine.items[2], "in the middle")
    assert positions(machine.take("anna", 5, FAR)) == [1]
    machine.reject(machine.items[1], "the first")
    assert positions(machine.take("anna", 5, FAR)) == [3]
    machine.finish([machine.items[1], machine.items[2], machine.items[3]], "dead")
    assert machine.items == {}


def test_one_that_comes_forward_late_need_not_wait_for_the_next_look() -> None:
    machine = filled(Item(1, 1, 0, key="k"), Item(2, 1, 0, due=50, key="k"), ordered=True)
    machine.take("anna", 1, FAR)
    machine.advance(now(wall=60))
    machine.finish([machine.items[1]], "acked")
    assert positions(machine.take("anna", 1, FAR)) == [2]


def test_the_oldest_are_found_whoever_held_them_meanwhile() -> None:
    machine = filled(*plain(5))
    assert positions(machine.oldest()) == [1, 2, 3, 4, 5]
    one, two, *_ = machine.take("anna", 3, FAR)
    assert positions(machine.oldest()) == [4, 5]
    machine.finish([two], "acked")
    machine.give_back(one, 0, "")
    machine.admit(plain(1, first=6))
    assert positions(machine.oldest()) == [1, 4, 5, 6]


def test_numbers_tell_where_a_message_is() -> None:
    machine = filled(Item(1, 0, 0), Item(2, 0, 0, due=50), Item(3, 0, 0), tries=1)
    [one] = machine.take("anna", 1, FAR)
    assert (one.status, machine.items[2].status, machine.items[3].status) == (LEASED, DELAYED, READY)
    machine.give_back(one, 0, "enough")
    assert one.status == DYING
    machine.finish([one], "dead")
    assert one.status == GONE
    assert machine.ready == 1


# A state machine grows with what is there, not with what was


def dropping(machine: StateMachine, first: int) -> None:
    """Nobody takes anything; the oldest make room."""
    machine.admit(plain(10, first))
    machine.finish(list(itertools.islice(machine.oldest(), 10)), "dropped")


def taking(machine: StateMachine, first: int) -> None:
    """Whatever comes is done long before its lease runs out."""
    machine.admit(plain(10, first))
    machine.finish(machine.take("anna", 10, FAR + first), "acked")


def expiring(machine: StateMachine, first: int) -> None:
    """Whatever comes is done long before it expires."""
    machine.admit([Item(position, 1, 0, expires=FAR) for position in range(first, first + 10)])
    machine.finish(machine.take("anna", 10, FAR), "acked")


def resting(machine: StateMachine, first: int) -> None:
    """What waits for its time is purged."""
    machine.admit([Item(position, 1, 0, due=FAR) for position in range(first, first + 10)])
    machine.finish(list(machine.waiting()), "purged")


def urgent(machine: StateMachine, first: int) -> None:
    """Those that are behind the highest priority never come to the front of the line."""
    machine.admit([Item(first, 1, 0, priority=9)])
    machine.admit([Item(position, 1, 0, priority=1) for position in range(first + 1, first + 10)])
    machine.finish([machine.items[position] for position in range(first + 1, first + 10)], "dropped")
    if first > 100:
        machine.finish([machine.items[first - 100]], "dropped")


def keyed(machine: StateMachine, first: int) -> None:
    machine.admit([Item(position, 1, 0, key=str(position)) for position in range(first, first + 10)])
    machine.finish(machine.take("anna", 10, FAR), "acked")


@pytest.mark.parametrize("step", [dropping, taking, expiring, resting, urgent, keyed])
def test_what_is_gone_is_let_go(step: Callable[[StateMachine, int], None]) -> None:
    machine = StateMachine(ordered=step is keyed)
    machine.advance(now())
    for first in range(1, 40_000, 10):
        step(machine, first)
    assert len(machine.items) <= 20
    gc.collect()
    assert sum(isinstance(thing, Item) for thing in gc.get_objects()) < 2_500


def test_a_message_that_is_given_back_again_and_again_does_not_pile_up() -> None:
    machine = filled(Item(1, 1, 0, expires=FAR), tries=10**9)
    for _ in range(20_000):
        [item] = machine.take("anna", 1, FAR)
        machine.extend(item, FAR + 1)
        machine.give_back(item, 0, "")
    assert max(len(heap) for heap in (machine._expiring, machine._leases, machine._ready)) < 2_500
    assert positions(machine.take("anna", 1, FAR)) == [1]


def test_a_lease_that_is_tidied_up_still_runs_out() -> None:
    machine = filled(*plain(1))
    machine.take("slow", 1, 500)
    for first in range(2, 5_000):
        machine.admit(plain(1, first))
        machine.finish(machine.take("quick", 1, FAR), "acked")
    machine.advance(now(500))
    assert positions(machine.take("heir", 1, FAR)) == [1]
