"""Messages as AMQP has them: what it has no property for stands in one header, as in records of a topic."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from penstock.core.time import micros
from penstock.errors import BadInput
from penstock.queue.dead_letters import HEADER as DEAD
from penstock.queue.dead_letters import as_dead_letter
from penstock.queue.port import Message
from penstock.queue.rabbitmq.amqp.channel import Fetched
from penstock.queue.rabbitmq.amqp.library import library
from penstock.queue.state.machine import EXPIRED
from penstock.queue.state.routing import FOR

HEADER = "penstock-message"  # JSON: key, route, sent, due and expires (microseconds), and tries, where they say anything
PERSISTENT = 2
LONGEST = 2**31 - 1  # milliseconds: the longest expiry that is left to the broker
_SHORT = 255  # bytes of an id, and of the name of a header
_KEPT = ("x-death", "x-delivery-count", "x-acquired-count", "x-first-death-", "x-last-death-")  # the broker's own headers
_ROUTES = ("CC", "BCC")  # headers that the broker routes by
_NAMED = "penstock-named-"  # stands before the names of headers that mean something to the broker, and are not meant so
_REASONS = {
    "expired": EXPIRED,
    "rejected": "it was rejected",
    "delivery_limit": "it was delivered too often",
    "maxlen": "the queue was full",
}


@dataclass(frozen=True)
class MessageHeader:
    """What stands in the header."""

    key: str | None = None
    route: str = ""
    sent: int = 0
    due: int = 0
    expires: int = 0
    tries: int = 0  # deliveries before it was put in anew: what the broker has counted since comes on top

    def encoded(self) -> bytes:
        return orjson.dumps(
            {name: value for name, value in self.__dict__.items() if value or (name == "key" and value is not None)}
        )


def header_of(message: Message, now: int, tries: int = 0) -> MessageHeader:
    due = now + micros(message.delay) if message.delay else 0
    expires = now + micros(message.ttl) if message.ttl is not None else 0
    return MessageHeader(message.key, message.route, now, due, expires, tries)


def check_sendable(message: Message, priorities: bool) -> Message:
    """BadInput for what AMQP, or RabbitMQ, cannot carry. priorities: the queue has them."""
    if message.priority and not priorities:
        raise BadInput(
            "quorum queues have no priorities before RabbitMQ 4.3",
            hint="leave priority out, or make the queue with ?queues=classic in the address",
        )
    if len(message.id.encode()) > _SHORT:
        raise BadInput(f"{message.id[:60]!a} is too long for RabbitMQ", hint=f"ids have at most {_SHORT} bytes")
    for name in message.headers:
        if len(wire_name(name).encode()) > _SHORT:
            raise BadInput(f"the header {name[:60]!a}… has too long a name", hint=f"at most {_SHORT} bytes")
    return message


def properties_of(message: Message, header: MessageHeader, now: int, expire: bool = True) -> Any:
    """The properties that the message is published with. expire: the broker may take it out when it expires."""
    left = (header.expires - now) // 1000 if header.expires and expire else None
    headers: dict[str, Any] = {wire_name(name): wire_value(value) for name, value in message.headers.items() if name != FOR}
    headers[HEADER] = header.encoded().decode()
    return library().BasicProperties(
        message_id=message.id,
        headers=headers,
        priority=message.priority,
        delivery_mode=PERSISTENT,
        expiration=str(max(left, 0)) if left is not None and left <= LONGEST else None,
        timestamp=header.sent // 1_000_000,
    )


def decode(got: Fetched, queue: str, prefix: str, delays: str) -> tuple[Message, MessageHeader]:
    """The message, and what its header says. A dead letter of the broker's own looks like all others.

    prefix: of the names of all queues. delays: the prefix of the queues that delay messages."""
    found = dict(got.properties.headers or {})
    header = _decode_header(found.pop(HEADER, None), got)
    headers = {name.removeprefix(_NAMED): _bytes(value) for name, value in found.items() if not name.startswith(_KEPT)}
    id, priority = got.properties.message_id or "", got.properties.priority or 0
    message = Message(got.body, id, header.key, headers, priority, route=header.route)
    deaths = [death for death in found.get("x-death") or () if not str(death.get("queue", "")).startswith(delays)]
    if DEAD not in headers and deaths and str(deaths[0].get("queue")) != queue:
        return _dead_letter(message, deaths[0], header, prefix), MessageHeader(header.key, header.route, header.sent)
    return message, header


def _dead_letter(message: Message, death: Mapping[str, Any], header: MessageHeader, prefix: str) -> Message:
    queue, reason = str(death["queue"]).removeprefix(prefix), str(death.get("reason", ""))
    at = death.get("time")
    when = micros(at) if at is not None else header.sent
    return as_dead_letter(message, queue, f"{queue}/{message.id}", header.tries, _REASONS.get(reason, reason), when)


def count_of(got: Fetched, header: MessageHeader) -> int:
    """How often the message was delivered before. Quorum queues count that; of others it is known whether it was."""
    found = got.properties.headers or {}
    if "x-delivery-count" in found or "x-acquired-count" in found:
        return header.tries + int(found.get("x-delivery-count", 0))
    return header.tries + int(got.redelivered)


def _decode_header(encoded: Any, got: Fetched) -> MessageHeader:
    sent = int(got.properties.timestamp or 0) * 1_000_000
    try:
        return MessageHeader(**orjson.loads(encoded))
    except (ValueError, TypeError):
        return MessageHeader(route=got.routing_key if got.exchange else "", sent=sent)  # another program's


def wire_name(name: str) -> str:
    own = name in _ROUTES or name == HEADER or name.startswith((*_KEPT, _NAMED))
    return f"{_NAMED}{name}" if own else name


def wire_value(value: bytes) -> str | bytes:
    """Text where it is text: other programs, and bindings, expect it."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    return orjson.dumps(value, default=str)
