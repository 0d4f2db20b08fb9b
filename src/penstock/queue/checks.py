"""Validates queues, messages, consumers and settlements as they are given."""

import itertools
import os
import secrets
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any, get_args

from penstock.core.names import check_name
from penstock.errors import BadInput
from penstock.queue.port import PRIORITIES, Consumer, Fate, Message, Policy, QueueSpec, Settlement
from penstock.queue.state.routing import check_route

POLICIES: tuple[Policy, ...] = get_args(Policy)
FATES: tuple[Fate, ...] = get_args(Fate)
_NOTHING, _LONGEST = timedelta(0), timedelta(days=366)
_MOST_ID = 200
_PLAIN = Message(b"")[1:]


def check_spec(spec: QueueSpec) -> QueueSpec:
    check_name(spec.name, "queue")
    check_name(spec.dead_letters, "queue")
    check_name(spec.origin, "source")
    if spec.dead_letters == spec.name:
        raise BadInput(f"queue {spec.name} cannot be its own dead letter queue")
    _check_lease(spec.lease)
    if not _is_time(spec.retry):
        raise BadInput(f"retry cannot be {spec.retry}", hint="at least 0 seconds, at most a year")
    if not _is_count(spec.tries):
        raise BadInput(f"tries cannot be {spec.tries}", hint="at least 1: tries=1 delivers every message once")
    for binding in spec.bindings:
        check_route(binding.route, pattern=True)
        _check_headers(binding.headers)
    _check_limit(spec)
    return spec


def _check_limit(spec: QueueSpec) -> None:
    limit = spec.limit
    if limit.policy not in POLICIES:
        raise BadInput(f"{limit.policy!r} is not a policy of a limit", hint=f"one of {', '.join(POLICIES)}")
    if any(most is not None and not _is_count(most) for most in (limit.messages, limit.bytes)):
        raise BadInput("the limit of a queue is too small", hint="messages and bytes are at least 1")
    if limit.policy != "buffer" and limit.messages is None and limit.bytes is None:
        raise BadInput(f"{limit.policy} needs a limit", hint="set messages=, bytes= or both")
    if spec.source not in (None, spec.name) and limit.policy in ("push-back", "drop-newest"):
        raise BadInput(
            f"queue {spec.name} cannot {limit.policy.replace('-', ' ')}: it takes what others send to {spec.source}",
            hint="use buffer or drop-oldest, or a limit on the queue that is sent to",
        )


def check_messages(messages: Sequence[Message]) -> None:
    for message in messages:
        if type(message[0]) is not bytes or message[1:] != _PLAIN:
            check_message(message)


def check_message(message: Message) -> Message:
    if not isinstance(message.body, bytes):
        raise BadInput(f"a message is bytes, not {type(message.body).__name__}", hint="Queue.send takes dicts and text, too")
    if not isinstance(message.priority, int) or not 0 <= message.priority < PRIORITIES:
        raise BadInput(f"priority cannot be {message.priority}", hint=f"0 to {PRIORITIES - 1}; the highest is delivered first")
    if not _is_time(message.delay) or (message.ttl is not None and (not _is_time(message.ttl) or not message.ttl)):
        raise BadInput("delay and ttl cannot be negative, nor longer than a year")
    if not isinstance(message.id, str) or len(message.id) > _MOST_ID or not message.id.isprintable():
        raise BadInput(f"{str(message.id)[:60]!a} cannot be the id of a message", hint=f"at most {_MOST_ID} printable characters")
    if message.key is not None and not _is_text(message.key):
        raise BadInput(f"{str(message.key)[:60]!a} cannot be the key of a message", hint="a key is text")
    _check_headers(message.headers)
    check_route(message.route)
    return message


def _check_headers(headers: Mapping[str, bytes]) -> None:
    if not isinstance(headers, Mapping):
        raise BadInput(f"headers are a mapping of names to bytes, not {type(headers).__name__}")
    for name, value in headers.items():
        if not _is_text(name) or not name or not isinstance(value, bytes):
            raise BadInput(f"{str(name)[:60]!a} cannot be a header", hint="headers have a name, and bytes for a value")


@lru_cache(1_000, typed=True)
def check_consumer(consumer: Consumer, most: int) -> None:
    """Checked once, however often a consumer asks."""
    if not _is_count(consumer.prefetch) or not _is_count(most):
        raise BadInput("a consumer receives one message or more", hint="prefetch and most are at least 1")
    if not _is_text(consumer.name) or not 0 < len(consumer.name) <= _MOST_ID or not consumer.name.isprintable():
        raise BadInput(
            f"{str(consumer.name)[:60]!a} cannot be the name of a consumer", hint=f"1 to {_MOST_ID} printable characters"
        )
    if consumer.lease is not None:
        _check_lease(consumer.lease)


def check_settlements(settlements: Sequence[Settlement]) -> None:
    for settlement in settlements:
        if settlement.fate != "ack":
            _check_settlement(settlement)


def _check_settlement(settlement: Settlement) -> None:
    if settlement.fate not in FATES:
        raise BadInput(f"{settlement.fate!r} is not a way to settle a message", hint=f"one of {', '.join(FATES)}")
    if settlement.delay is not None and settlement.fate == "extend":
        _check_lease(settlement.delay)
    if settlement.delay is not None and not _is_time(settlement.delay):
        raise BadInput(f"delay cannot be {settlement.delay}", hint="at least 0 seconds, at most a year")


def readable(text: str) -> str:
    """The text, with what UTF-8 cannot hold replaced."""
    return text.encode(errors="replace").decode()


def _check_lease(lease: timedelta) -> None:
    if not _is_time(lease) or not lease:
        raise BadInput(f"lease cannot be {lease}", hint="more than 0 seconds, at most a year")


def _is_time(value: Any) -> bool:
    return isinstance(value, timedelta) and _NOTHING <= value <= _LONGEST


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and value >= 1


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and readable(value) == value


class Ids:
    """Ids for messages that have none: short, and never used twice."""

    def __init__(self) -> None:
        self._numbers, self._prefix, self._pid = itertools.count(1), f"{secrets.token_hex(6)}-", os.getpid()

    def named(self, messages: Sequence[Message]) -> Sequence[Message]:
        if self._pid != os.getpid():
            self.__init__()  # type: ignore[misc]
        make, prefix, number = tuple.__new__, self._prefix, self._numbers.__next__  # Message(…) is half as fast
        return [m if m[1] else make(Message, (m[0], f"{prefix}{number()}", *m[2:])) for m in messages]
