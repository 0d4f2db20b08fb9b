"""Whether a queue, a message or a consumer can be as it is given."""

import itertools
import os
import secrets
from collections.abc import Sequence
from datetime import timedelta

from penstock.core.names import check_name
from penstock.errors import BadInput
from penstock.queue.port import PRIORITIES, Consumer, Message, QueueSpec
from penstock.queue.routing import check_route

POLICIES = ("buffer", "push-back", "drop-newest", "drop-oldest")
_LONGEST = timedelta(days=366)
_MOST_ID = 200


def check_spec(spec: QueueSpec) -> QueueSpec:
    check_name(spec.name, "queue")
    check_name(spec.dead_letters, "queue")
    check_name(spec.origin, "source")
    if spec.dead_letters == spec.name:
        raise BadInput(f"queue {spec.name} cannot be its own dead letters")
    if not timedelta(0) < spec.lease <= _LONGEST:
        raise BadInput(f"a lease of {spec.lease} cannot be", hint="between a moment and a year")
    if spec.tries < 1:
        raise BadInput(f"{spec.tries} tries cannot be", hint="tries=1 lends every message once")
    for binding in spec.bindings:
        check_route(binding.route, pattern=True)
    _check_limit(spec)
    return spec


def _check_limit(spec: QueueSpec) -> None:
    limit = spec.limit
    if limit.policy not in POLICIES:
        raise BadInput(f"{limit.policy!r} does not say what happens when there is too much", hint=f"one of {', '.join(POLICIES)}")
    if any(most is not None and most < 1 for most in (limit.messages, limit.bytes)):
        raise BadInput("a limit has to leave room for something", hint="messages and bytes are at least 1")
    if limit.policy != "buffer" and limit.messages is None and limit.bytes is None:
        raise BadInput(f"{limit.policy} needs a limit", hint="say how many messages, or how many bytes")
    if spec.source not in (None, spec.name) and limit.policy in ("push-back", "drop-newest"):
        raise BadInput(
            f"queue {spec.name} cannot {limit.policy.replace('-', ' ')}: it takes what others send to {spec.source}",
            hint="use buffer or drop-oldest, or a limit on the queue that is sent to",
        )


def check_message(message: Message) -> Message:
    if not isinstance(message.body, bytes):
        raise BadInput(f"a message is bytes, not {type(message.body).__name__}", hint="Queue.send takes dicts and text, too")
    if not 0 <= message.priority < PRIORITIES:
        raise BadInput(f"priority {message.priority} cannot be", hint=f"0 to {PRIORITIES - 1}, the highest comes first")
    if (
        message.delay < timedelta(0)
        or message.delay > _LONGEST
        or (message.ttl is not None and not timedelta(0) < message.ttl <= _LONGEST)
    ):
        raise BadInput("a delay or a time to live cannot be negative, nor longer than a year")
    if len(message.id) > _MOST_ID or not message.id.isprintable():
        raise BadInput(f"{message.id[:60]!a} cannot be the id of a message", hint=f"at most {_MOST_ID} printable characters")
    if message.route:
        check_route(message.route)
    return message


def check_consumer(consumer: Consumer, most: int) -> None:
    if consumer.prefetch < 1 or most < 1:
        raise BadInput("a consumer asks for one message or more", hint="prefetch and most are at least 1")
    if consumer.lease is not None and not timedelta(0) < consumer.lease <= _LONGEST:
        raise BadInput(f"a lease of {consumer.lease} cannot be", hint="between a moment and a year")


class Ids:
    """Names for messages that have none: short, and never used twice."""

    def __init__(self) -> None:
        self._numbers, self._prefix, self._pid = itertools.count(1), secrets.token_hex(6), os.getpid()

    def named(self, messages: Sequence[Message]) -> Sequence[Message]:
        if self._pid != os.getpid():
            self.__init__()  # type: ignore[misc]
        return [m if m.id else Message(m.body, f"{self._prefix}-{next(self._numbers):x}", *m[2:]) for m in messages]
