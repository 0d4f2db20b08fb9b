"""The options of queues and messages as users write them: times as text, bodies as text or JSON."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, TypedDict

import orjson

from penstock.core.time import duration
from penstock.errors import BadInput
from penstock.queue.port import Binding, Limit, Message, QueueSpec

Body = bytes | str | Mapping[str, Any]
Time = str | timedelta
NOW = timedelta(0)


class QueueOptions(TypedDict, total=False):
    """The settings of a queue; what is left out is as QueueSpec has it."""

    source: str | None  # the topic or exchange whose messages it takes
    bindings: Sequence[Binding | str]  # which of them; text: a pattern of routes
    lease: Time
    tries: int
    retry: Time
    ordered: bool
    limit: Limit
    dead: str | None
    start: Literal["earliest", "latest"]


class MessageOptions(TypedDict, total=False):
    """What goes with a body."""

    id: str
    key: str | None
    headers: Mapping[str, bytes | str]
    priority: int
    delay: Time
    ttl: Time | None
    route: str


class WorkOptions(TypedDict, total=False):
    """How a worker works."""

    until_empty: bool
    prefetch: int | None  # messages that it may hold at once; None: two per thread
    lease: Time | None
    retry: Time | None  # the delay after the first failure
    name: str | None


def spec_of(name: str, options: QueueOptions) -> QueueSpec:
    given: dict[str, Any] = dict(options)
    for word in given.keys() & {"lease", "retry"}:
        given[word] = duration(given[word], word)
    if "bindings" in given:
        given["bindings"] = tuple(Binding(b) if isinstance(b, str) else b for b in given["bindings"])
    try:
        return QueueSpec(name, **given)
    except TypeError:
        unknown = sorted(given.keys() - QueueOptions.__annotations__.keys())
        hint = f"there are {', '.join(QueueOptions.__annotations__)}"
        raise BadInput(f"a queue has no setting {', '.join(unknown)}", hint=hint) from None


def message_of(body: Body | Message, options: MessageOptions) -> Message:
    if isinstance(body, Message):
        return body
    if not options:
        return Message(as_bytes(body))
    given: dict[str, Any] = dict(options)
    for word in given.keys() & {"delay", "ttl"}:
        given[word] = None if given[word] is None else duration(given[word], word)
    given["delay"] = given.get("delay") or NOW
    if "headers" in given:
        given["headers"] = {name: as_bytes(value) for name, value in given["headers"].items()}
    return Message(as_bytes(body), **given)


def as_bytes(body: Body) -> bytes:
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode()
    if not isinstance(body, Mapping):
        raise BadInput(f"a message cannot be {type(body).__name__}", hint="send bytes, text, or a dict, which goes as JSON")
    try:
        return orjson.dumps(dict(body))
    except TypeError as wrong:
        raise BadInput(f"a message cannot be written as JSON: {wrong}") from None
