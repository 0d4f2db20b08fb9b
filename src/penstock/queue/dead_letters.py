"""Dead letters: messages that failed, with the reason and where they come from."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from penstock.core.time import text
from penstock.errors import NotFound
from penstock.queue.port import Message
from penstock.queue.state.routing import FOR

HEADER = "penstock-dead"  # of a dead letter; redriving takes it off


@dataclass(frozen=True)
class DeadLetter:
    """Why and where a message became a dead letter."""

    queue: str
    reason: str
    count: int  # how often it had been delivered
    origin: str  # where it stood
    at: str


def as_dead_letter(message: Message, queue: str, origin: str, count: int, reason: str, at: int) -> Message:
    """The message as it goes to the dead letters: without delay and expiry, with a header that says why."""
    header = {"queue": queue, "reason": reason, "count": count, "origin": origin, "at": text(at)}
    headers = {name: value for name, value in message.headers.items() if name != FOR} | {HEADER: orjson.dumps(header)}
    return Message(message.body, message.id, message.key, headers, message.priority, route=message.route)


def without_death(message: Message) -> Message:
    """The message as it was before it became a dead letter."""
    headers = {name: value for name, value in message.headers.items() if name != HEADER}
    return message._replace(headers=headers)


def dead_letter(message: Message) -> DeadLetter | None:
    """Why it died and where; None if it is not a dead letter."""
    encoded = message.headers.get(HEADER)
    if encoded is None:
        return None
    try:
        found: dict[str, Any] = orjson.loads(encoded)
        return DeadLetter(str(found["queue"]), str(found["reason"]), int(found["count"]), str(found["origin"]), str(found["at"]))
    except (ValueError, KeyError, TypeError):
        return None


def no_queue(name: str, known: Iterable[str]) -> NotFound:
    close = difflib.get_close_matches(name, list(known), 3)
    hint = f"did you mean {' or '.join(close)}?" if close else "penstock queue list shows those there are"
    return NotFound(f"there is no queue {name}", hint=hint)
