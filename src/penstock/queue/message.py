"""A message, as whoever got it sees it."""

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
from penstock.queue.port import Delivery, Fate, Message, Settlement
from penstock.queue.state.routing import FOR


class Reject(Exception):
    """Raised by whoever handles a message that no further try will help: it goes to the dead letters at once, with this text."""


class Letter:
    """What a message says, and how it came."""

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
            raise BadInput(f"message {self.id} is no text: {wrong}", hint="use message.body") from None

    def json(self) -> Any:
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError as wrong:
            raise BadInput(f"message {self.id} is no JSON: {wrong}", hint="use message.body") from None

    @property
    def id(self) -> str:
        """Goes with the message everywhere: tells doubles apart."""
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
        """1: nobody had it before."""
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


class Lent(Letter):
    """A message that is lent, to be settled once."""

    fate: str | None = None  # what became of it: a Fate, "auto", or "lost" with its lease

    def settlement(self, fate: Fate, delay: Time | None = None, reason: str = "", tried: bool = True) -> Settlement:
        if self.fate is not None:
            raise settled_before(self.id, self.fate)
        return Settlement(self.delivery.receipt, fate, None if delay is None else duration(delay, "delay"), reason, tried)

    def ending(self, error: BaseException | None) -> Settlement | None:
        """What becomes of it at the end of a `with`; None if that was said inside."""
        if self.fate is not None:
            return None
        if error is None:
            return self.settlement("ack")
        if isinstance(error, Reject):
            return self.settlement("reject", reason=str(error))
        return self.settlement("nack", reason=reason_of(error))


def note(queue: str, pairs: Sequence[tuple[Lent, Settlement]], lost: Collection[str]) -> None:
    """Writes down what became of messages; LeaseLost if some were lost."""
    for lent, settlement in pairs:
        if settlement.receipt in lost or settlement.fate != "extend":
            lent.fate = "lost" if settlement.receipt in lost else settlement.fate
    if lost:
        raise lease_lost(queue, [lent.id for lent, s in pairs if s.receipt in lost], len(pairs))


Settle = Callable[[Sequence[tuple[Lent, Settlement]]], None]  # does it, and writes the fates down; LeaseLost


class Received(Lent):
    """A message in your hands: `ack` it, give it back with `nack`, or `reject` it. `with message:` acks at the end, and gives it
    back (rejects it, for a Reject) when an exception leaves, which passes on."""

    def __init__(self, delivery: Delivery, settle: Settle) -> None:
        super().__init__(delivery)
        self._settle = settle

    def ack(self) -> None:
        """It is done. LeaseLost if its lease had run out: somebody else has it, or will."""
        self._settle([(self, self.settlement("ack"))])

    def nack(self, delay: Time | None = None, reason: str = "") -> None:
        """Gives it back: it is lent again after `delay` (by default what the queue's settings say), or goes to the dead letters
        if this was its last try."""
        self._settle([(self, self.settlement("nack", delay, reason))])

    def release(self) -> None:
        """Gives it back as it came: this was no try."""
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
