"""What every store of events holds an append to."""

from collections.abc import Sequence

from penstock.core.time import FIRST, LAST, text
from penstock.errors import AlreadyThere, BadInput, BadName, BadTime
from penstock.events.event import Append, StoredEvent

_LONGEST = 512  # bytes of a stream's name, or of an event's id


def check_together(appends: Sequence[Append]) -> None:
    """Refuses what no store can append."""
    if not appends or not all(append.events for append in appends):
        raise BadInput("there is nothing to append: no events", hint="give at least one event for each stream")
    streams = [append.stream for append in appends]
    if len(set(streams)) < len(streams):
        raise BadInput("a stream is named twice in one append", hint="give all its events at once")
    for append in appends:
        check_stream(append.stream)
        ids = [event.id for event in append.events]
        if len(set(ids)) < len(ids):
            raise BadInput(f"two events for stream {append.stream!r} have the same id", ", ".join(sorted(ids)))
        for event in append.events:
            _check_text(event.id, "event")
            if event.at is not None and not FIRST <= event.at <= LAST:
                raise BadTime(f"an event for stream {append.stream!r} has a time outside the years 1 to 9999", text(event.at))


def check_stream(stream: str) -> str:
    """The name, if a stream can have it; BadName if not."""
    return _check_text(stream, "stream")


def _check_text(value: str, what: str) -> str:
    if isinstance(value, str) and 1 <= len(value.encode(errors="replace")) <= _LONGEST and value.isprintable():
        return value
    raise BadName(
        f"{value!a} cannot name {'an event' if what == 'event' else 'a stream'}", hint=f"use 1 to {_LONGEST} bytes of text"
    )


def already(appends: Sequence[Append], there: Sequence[Sequence[StoredEvent]]) -> bool:
    """Whether all these events were appended before; AlreadyThere if only some of them were, or not one behind the other."""
    if not any(there):
        return False
    for append, events in zip(appends, there, strict=True):
        versions = [event.version for event in events]
        if len(events) < len(append.events) or versions != list(range(versions[0], versions[0] + len(versions))):
            known = next(event for found in there for event in found)
            raise AlreadyThere(
                f"event {known.id!r} is version {known.version} of stream {known.stream!r} already; others of this append are not",
                hint="events that belong together are retried together; new ones need new ids",
            )
    return True


def check_order(append: Append, last: int | None) -> None:
    """Refuses times that go back in a stream: what was true at a moment would change afterwards."""
    for event in append.events:
        if event.at is not None and last is not None and event.at < last:
            raise BadTime(
                f"an event of {text(event.at)} cannot follow one of {text(last)} in stream {append.stream!r}",
                hint="leave at= out, or give a time that is not earlier",
            )
        last = event.at if event.at is not None else last
