"""A book, as JSON holds it, and back."""

from typing import Any

from penstock.queue.state.machine import Book, Item


def taken(book: Book) -> dict[str, Any]:
    """All that a book knows."""
    return {
        "ordered": book.ordered,
        "tries": book.tries,
        "boot": book.boot,
        "token": book.token,
        "number": book.number,
        "counts": dict(book.counts),
        "leaving": [[place, reason] for place, reason in book.leaving.items()],
        "items": [_row(item) for item in book.items.values()],
    }


def restored(said: dict[str, Any]) -> Book:
    """A book that goes on as that one would have."""
    book = Book(said["ordered"], said["tries"])
    book.boot, book.token, book.number = said["boot"], said["token"], said["number"]
    book.counts.update(said["counts"])
    book.leaving.update((place, reason) for place, reason in said["leaving"])
    book.put_down([_item(row) for row in said["items"]])
    return book


def _row(item: Item) -> list[Any]:
    place = [item.place, item.size, item.sent, item.priority, item.due, item.expires, item.key, item.number, item.count, item.where]
    held = [item.consumer, item.token, item.until] if item.count else []
    return [*place, *held] if item.begun else [*place, *held, False]


def _item(row: list[Any]) -> Item:
    item = Item(*row[:7])
    item.number, item.count, item.where = row[7:10]
    if item.count:
        item.consumer, item.token, item.until = row[10:13]
        item.begun = len(row) == 13
    return item
