"""The rules of a queue, by themselves. What they come to is in the suite of queues; here is what only a book can show."""

import gc
import itertools
from collections.abc import Callable, Iterable

import pytest

from penstock.errors import BadInput
from penstock.queue.on_log.commands import receipt
from penstock.queue.state.machine import BLOCKED, GONE, LEAVING, LENT, READY, RESTING, Book, Item, Now

FAR = 10**15


def now(beat: int = 0, wall: int = 0, boot: str = "boot") -> Now:
    return Now(boot, beat, wall)


def filled(*items: Item, ordered: bool = False, tries: int = 5) -> Book:
    book = Book(ordered, tries)
    book.wake(now())
    book.admit(items)
    return book


def plain(count: int, first: int = 1) -> list[Item]:
    return [Item(place, 10, 0) for place in range(first, first + count)]


def places(items: Iterable[Item]) -> list[int]:
    return [item.place for item in items]


def test_what_is_lent_is_lent_under_a_token_of_its_own() -> None:
    book = filled(*plain(3))
    first, second = book.take("anna", 2, 50), book.take("ben", 2, 60)
    assert (places(first), places(second)) == ([1, 2], [3])
    assert [item.token for item in (*first, *second)] == [1, 1, 2]
    assert dict(book.held) == {"anna": 2, "ben": 1}
    assert not book.take("cleo", 1, 70)


def test_a_receipt_counts_for_its_delivery_alone() -> None:
    book = filled(*plain(1))
    [item] = book.take("anna", 1, 50)
    mine = receipt(item)
    assert book.of_receipts([mine], now(49)) == [item]
    assert book.of_receipts([mine], now(50)) == [None]
    assert book.of_receipts([mine], now(0, boot="another")) == [None]
    assert book.of_receipts(["1-2"], now()) == [None]
    assert book.of_receipts(["2-1"], now()) == [None]
    book.give_back(item, 0, "")
    assert book.of_receipts([mine], now()) == [None]
    book.take("ben", 1, 50)
    assert book.of_receipts([mine], now()) == [None]


@pytest.mark.parametrize("text", ["", "-", "1", "1-", "-1", "1-x", "x-1", "1-²", "1-" + "9" * 5_000])
def test_what_is_no_receipt_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is no receipt"):
        Book().of_receipts([text], now())


def test_a_machine_that_starts_anew_frees_everything() -> None:
    book = filled(*plain(3), tries=2)
    book.take("anna", 2, FAR)
    book.give_back(book.items[1], 0, "")
    book.take("anna", 1, FAR)
    book.wake(now(boot="another"))
    assert dict(book.held) == {}
    assert book.leaving == {1: "its lease ran out"}
    assert places(book.take("ben", 5, FAR)) == [2, 3]
    assert book.of_receipts(["2-1"], now(boot="another")) == [None]


def test_what_has_to_leave_takes_no_room_and_comes_back_to_nobody() -> None:
    book = filled(*plain(3))
    book.set_aside(book.items[2], "why")
    assert book.there() == (2, 20)
    assert book.leaving == {2: "why"}
    book.set_aside(book.items[2], "a better word")
    assert book.leaving == {2: "a better word"}
    assert places(book.take("anna", 5, FAR)) == [1, 3]
    book.finish([book.items[2]], "dead")
    assert (book.leaving, book.counts["dead"], book.there()) == ({}, 1, (2, 20))


def test_one_that_has_to_leave_holds_up_nobody_of_its_key() -> None:
    book = filled(*(Item(place, 1, 0, key="k") for place in (1, 2, 3)), ordered=True)
    assert [item.where for item in book.items.values()] == [READY, BLOCKED, BLOCKED]
    book.set_aside(book.items[2], "in the middle")
    assert places(book.take("anna", 5, FAR)) == [1]
    book.set_aside(book.items[1], "the first")
    assert places(book.take("anna", 5, FAR)) == [3]
    book.finish([book.items[1], book.items[2], book.items[3]], "dead")
    assert book.items == {}


def test_one_that_comes_forward_late_need_not_wait_for_the_next_look() -> None:
    book = filled(Item(1, 1, 0, key="k"), Item(2, 1, 0, due=50, key="k"), ordered=True)
    book.take("anna", 1, FAR)
    book.wake(now(wall=60))
    book.finish([book.items[1]], "acked")
    assert places(book.take("anna", 1, FAR)) == [2]


def test_the_oldest_are_found_whoever_held_them_meanwhile() -> None:
    book = filled(*plain(5))
    assert places(book.oldest()) == [1, 2, 3, 4, 5]
    one, two, *_ = book.take("anna", 3, FAR)
    assert places(book.oldest()) == [4, 5]
    book.finish([two], "acked")
    book.give_back(one, 0, "")
    book.admit(plain(1, first=6))
    assert places(book.oldest()) == [1, 4, 5, 6]


def test_numbers_tell_where_a_message_is() -> None:
    book = filled(Item(1, 0, 0), Item(2, 0, 0, due=50), Item(3, 0, 0), tries=1)
    [one] = book.take("anna", 1, FAR)
    assert (one.where, book.items[2].where, book.items[3].where) == (LENT, RESTING, READY)
    book.give_back(one, 0, "enough")
    assert one.where == LEAVING
    book.finish([one], "dead")
    assert one.where == GONE
    assert book.ready == 1


# A book grows with what is there, not with what was


def dropping(book: Book, first: int) -> None:
    """Nobody takes anything; the oldest make room."""
    book.admit(plain(10, first))
    book.finish(list(itertools.islice(book.oldest(), 10)), "dropped")


def taking(book: Book, first: int) -> None:
    """Whatever comes is done long before its lease runs out."""
    book.admit(plain(10, first))
    book.finish(book.take("anna", 10, FAR + first), "acked")


def expiring(book: Book, first: int) -> None:
    """Whatever comes is done long before it expires."""
    book.admit([Item(place, 1, 0, expires=FAR) for place in range(first, first + 10)])
    book.finish(book.take("anna", 10, FAR), "acked")


def resting(book: Book, first: int) -> None:
    """What waits for its time is purged."""
    book.admit([Item(place, 1, 0, due=FAR) for place in range(first, first + 10)])
    book.finish(list(book.in_line()), "purged")


def urgent(book: Book, first: int) -> None:
    """Those that are behind the highest priority never come to the front of the line."""
    book.admit([Item(first, 1, 0, priority=9)])
    book.admit([Item(place, 1, 0, priority=1) for place in range(first + 1, first + 10)])
    book.finish([book.items[place] for place in range(first + 1, first + 10)], "dropped")
    if first > 100:
        book.finish([book.items[first - 100]], "dropped")


def keyed(book: Book, first: int) -> None:
    book.admit([Item(place, 1, 0, key=str(place)) for place in range(first, first + 10)])
    book.finish(book.take("anna", 10, FAR), "acked")


@pytest.mark.parametrize("step", [dropping, taking, expiring, resting, urgent, keyed])
def test_what_is_gone_is_let_go(step: Callable[[Book, int], None]) -> None:
    book = Book(ordered=step is keyed)
    book.wake(now())
    for first in range(1, 40_000, 10):
        step(book, first)
    assert len(book.items) <= 20
    gc.collect()
    assert sum(isinstance(thing, Item) for thing in gc.get_objects()) < 2_500


def test_a_message_that_is_given_back_again_and_again_does_not_pile_up() -> None:
    book = filled(Item(1, 1, 0, expires=FAR), tries=10**9)
    for _ in range(20_000):
        [item] = book.take("anna", 1, FAR)
        book.extend(item, FAR + 1)
        book.give_back(item, 0, "")
    assert max(len(heap) for heap in (book._expiring, book._leases, book._line)) < 2_500
    assert places(book.take("anna", 1, FAR)) == [1]


def test_a_lease_that_is_tidied_up_still_runs_out() -> None:
    book = filled(*plain(1))
    book.take("slow", 1, 500)
    for first in range(2, 5_000):
        book.admit(plain(1, first))
        book.finish(book.take("quick", 1, FAR), "acked")
    book.wake(now(500))
    assert places(book.take("heir", 1, FAR)) == [1]
