"""What is done to a book, one call at a time; and what of it is written down, so that it can be done again.

An event is a list that JSON can hold. Whoever keeps a journal writes the events that these functions give; `told` does to
another book what they did to the first.
"""

from collections.abc import Collection, Sequence
from typing import Any

from penstock.core.time import micros
from penstock.queue.checks import check_settlements, readable
from penstock.queue.port import Consumer, QueueSpec, Settlement
from penstock.queue.state.machine import AT_ONCE, LENT, Book, Item, Now

Event = list[Any]


def waken(book: Book, now: Now) -> list[Event]:
    """Before anything else is done: what time has done."""
    events: list[Event] = [["boot", now.boot]] if book.boot != now.boot else []
    book.wake(now)
    return events


def lend(book: Book, spec: QueueSpec, consumer: Consumer, most: int, now: Now) -> tuple[list[Item], list[Event]]:
    most = min(most, consumer.prefetch - book.held.get(consumer.name, 0))
    until = now.beat + micros(consumer.lease or spec.lease)
    items = book.take(consumer.name, most, until, consumer.tells) if most > 0 else []
    event: Event = ["take", consumer.name, book.token, until, [i.place for i in items]]
    return items, [[*event, True] if consumer.tells else event] if items else []


def settle(book: Book, spec: QueueSpec, settlements: Sequence[Settlement], now: Now) -> tuple[list[str], list[Event]]:
    """The receipts that do not count any more, and what was done for the others."""
    check_settlements(settlements)
    lost, events, acked = list[str](), list[Event](), dict[int, Item]()
    lent = book.of_receipts([settlement.receipt for settlement in settlements], now)  # before anything is done
    for settlement, item in zip(settlements, lent, strict=True):
        if item is None or item.where != LENT or item.place in acked:
            lost.append(settlement.receipt)
        elif settlement.fate == "ack":
            acked[item.place] = item
        else:
            events += [*_acked(book, acked), _other(book, spec, item, settlement, now)]
    return lost, [*events, *_acked(book, acked)]


def _acked(book: Book, items: dict[int, Item]) -> list[Event]:
    events = finish(book, items.values(), "acked")
    items.clear()
    return events


def _other(book: Book, spec: QueueSpec, item: Item, settlement: Settlement, now: Now) -> Event:
    if settlement.fate == "nack":
        rest = spec.retry if settlement.delay is None else settlement.delay
        due = now.wall + micros(rest) if rest else AT_ONCE
        reason = readable(settlement.reason) or "it was given back"
        return _back(book, item, due, reason, settlement.tried)
    if settlement.fate == "reject":
        reason = readable(settlement.reason) or "it was rejected"
        book.set_aside(item, reason)
        return ["aside", reason, [item.place]]
    if settlement.fate == "begin":
        item.begun = True
        return ["begin", [item.place]]
    until = now.beat + micros(spec.lease if settlement.delay is None else settlement.delay)
    book.extend(item, until)
    return ["extend", until, [item.place]]


def _back(book: Book, item: Item, due: int, reason: str, tried: bool) -> Event:
    item.count -= not tried
    book.give_back(item, due, reason)
    return ["back", due, reason, [item.place]] if tried else ["untried", due, [item.place]]


def finish(book: Book, items: Collection[Item], how: str) -> list[Event]:
    if not items:
        return []
    book.finish(items, how)
    return [["done", how, [item.place for item in items]]]


def turn_away(book: Book, count: int) -> list[Event]:
    """Messages that were sent, and dropped before they were in."""
    events: list[Event] = [["count", "sent", count], ["count", "dropped", count]] if count else []
    for event in events:
        told(book, event)
    return events


def oldest_free(book: Book, messages: int, bytes: int) -> list[Item]:
    """The oldest that nobody holds: at least so many, and of so many bytes."""
    found: list[Item] = []
    if messages > 0 or bytes > 0:
        for item in book.oldest():
            found.append(item)
            messages, bytes = messages - 1, bytes - item.size
            if messages <= 0 and bytes <= 0:
                break
    return found


def told(book: Book, event: Event) -> None:
    """Does again what an event says."""
    kind = event[0]
    if kind == "take":
        _, consumer, token, until, places, *tells = event
        book.lend([book.items[p] for p in places], consumer, token, until, bool(tells))
    elif kind == "begin":
        for place in event[1]:
            book.items[place].begun = True
    elif kind == "done":
        book.finish([book.items[place] for place in event[2]], event[1])
    elif kind == "back":
        for place in event[3]:
            book.give_back(book.items[place], event[1], event[2])
    elif kind == "untried":
        for place in event[2]:
            _back(book, book.items[place], event[1], "", tried=False)
    elif kind == "aside":
        for place in event[2]:
            book.set_aside(book.items[place], event[1])
    elif kind == "extend":
        for place in event[2]:
            book.extend(book.items[place], event[1])
    elif kind == "boot":
        book.restart(event[1])
    elif kind == "count":
        book.counts[event[1]] += event[2]
    else:
        raise ValueError(f"no event is called {kind}")


def receipt(item: Item) -> str:
    return f"{item.place}-{item.token}"
