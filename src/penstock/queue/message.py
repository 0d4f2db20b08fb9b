"""A message as a consumer sees it, and as it settles it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any

import orjson

from penstock.core.time import duration, moment
from penstock.errors import BadInput, LeaseLost
from penstock.queue.client.reasons import reason_of
from penstock.queue.dead_letters import DeadLetter, dead_letter
from penstock.queue.errors import lease_lost, settled_before
from penstock.queue.options import NOW, Time
from penstock.queue.port import Delivery, Fate, Message, QueuePort, Settlement
from penstock.queue.state.routing import FOR


class Reject(Exception):
    """Raised by a handler for a message that no further try will help: it goes to the dead letters at once, with this text."""


class StoredMessage:
    """What a message says, and how it was delivered."""

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery

    @property
    def message(self) -> Message:
        """As it was sent."""
        return self.delivery.message

    @property
    def body(self) -> bytes:
        return self.delivery.message.body

    @property
    def text(self) -> str:
        try:
            return self.body.decode()
        except UnicodeDecodeError as wrong:
            raise BadInput(f"message {self.id} is not text: {wrong}", hint="use message.body") from None

    def json(self) -> Any:
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError as wrong:
            raise BadInput(f"message {self.id} is not JSON: {wrong}", hint="use message.body") from None

    @property
    def id(self) -> str:
        """Goes with the message everywhere; duplicates have the same one."""
        return self.delivery.message.id

    @property
    def key(self) -> str | None:
        return self.delivery.message.key

    @property
    def headers(self) -> Mapping[str, bytes]:
        headers = self.delivery.message.headers
        return {name: value for name, value in headers.items() if name != FOR} if FOR in headers else headers

    @property
    def priority(self) -> int:
        return self.delivery.message.priority

    @property
    def route(self) -> str:
        return self.delivery.message.route

    @property
    def attempt(self) -> int:
        """1: it was never delivered before."""
        return self.delivery.attempt

    @property
    def sent(self) -> datetime:
        """When the queue got it."""
        return moment(self.delivery.sent)

    @property
    def origin(self) -> str:
        """Where it stands: topic/partition/offset, or what the broker has instead."""
        return self.delivery.origin

    @property
    def dead(self) -> DeadLetter | None:
        """Why it died and where, if it is a dead letter."""
        return dead_letter(self.delivery.message)

    def __repr__(self) -> str:
        return f"<message {self.id}, try {self.attempt}, {len(self.body)} bytes>"


class LeasedMessage(StoredMessage):
    """A message that is leased, to be settled once."""

    fate: str | None = None  # what became of it: a Fate, "auto", or "lost" with its lease

    def settlement(self, fate: Fate, delay: Time | None = None, reason: str = "", tried: bool = True) -> Settlement:
        if self.fate is not None:
            raise settled_before(self.id, self.fate)
        return Settlement(self.delivery.receipt, fate, None if delay is None else duration(delay, "delay"), reason, tried)

    def ending(self, error: BaseException | None) -> Settlement | None:
        """What becomes of it at the end of a `with`; None if it was settled inside."""
        if self.fate is not None:
            return None
        if error is None:
            return self.settlement("ack")
        if isinstance(error, Reject):
            return self.settlement("reject", reason=str(error))
        return self.settlement("nack", reason=reason_of(error))


def note_outcomes(port: QueuePort, pairs: Sequence[tuple[LeasedMessage, Settlement]], lost: Collection[str]) -> None:
    """Notes at each message what became of it; LeaseLost if the leases of some had run out."""
    for message, settlement in pairs:
        if settlement.receipt in lost or settlement.fate != "extend":
            message.fate = "lost" if settlement.receipt in lost else settlement.fate
    if lost:
        raise lease_lost(port.spec.name, [message.id for message, s in pairs if s.receipt in lost], len(pairs))


Settle = Callable[[Sequence[tuple[LeasedMessage, Settlement]]], None]  # settles messages and notes their fates; LeaseLost


class Received(LeasedMessage):
    """A message that is leased to you: `ack` it, give it back with `nack`, or `reject` it. `with message:` acks it at the end;
    when an exception leaves, it is given back (rejected, for a Reject), and the exception passes on."""

    def __init__(self, delivery: Delivery, settle: Settle) -> None:
        self.delivery, self._settle = delivery, settle

    def ack(self) -> None:
        """It is done. LeaseLost if its lease had run out: it is delivered again."""
        self._settle([(self, self.settlement("ack"))])

    def nack(self, delay: Time | None = None, reason: str = "") -> None:
        """Gives it back: it is delivered again after `delay` (by default what the queue's settings say), or goes to the dead
        letters if this was its last try."""
        self._settle([(self, self.settlement("nack", delay, reason))])

    def release(self) -> None:
        """Gives it back, without counting as a try."""
        self._settle([(self, self.settlement("nack", NOW, tried=False))])

    def reject(self, reason: str = "") -> None:
        """It goes to the dead letters at once."""
        self._settle([(self, self.settlement("reject", reason=reason))])

    def extend(self, lease: Time | None = None) -> None:
        """Its lease begins anew."""
        self._settle([(self, self.settlement("extend", lease))])

    def __enter__(self) -> "Received":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        end = self.ending(error)
        if end is None:
            return
        try:
            self._settle([(self, end)])
        except LeaseLost:
            if error is None:
                raise
