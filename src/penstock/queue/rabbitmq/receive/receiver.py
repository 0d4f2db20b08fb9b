"""Takes messages from the broker and lends them, past those that are not to be lent."""

import asyncio
import itertools
import secrets
from collections.abc import Sequence

from penstock.errors import PenstockError
from penstock.queue.port import Consumer, Delivery, QueueSpec
from penstock.queue.rabbitmq.amqp.channel import Got
from penstock.queue.rabbitmq.amqp.connection import Wire
from penstock.queue.rabbitmq.amqp.envelope import count_of, opened
from penstock.queue.rabbitmq.receive.consumer_channel import Till
from penstock.queue.rabbitmq.receive.leases import Lending, Lent
from penstock.queue.rabbitmq.send.copier import Copier
from penstock.queue.state.machine import EXPIRED, RAN_OUT

_TILLS = 32  # channels that are kept although their consumers hold nothing
_EARLY = 1_000  # microseconds by which a message may be early


class Borrowing:
    """The consumers of one queue."""

    def __init__(self, wire: Wire, copier: Copier, lending: Lending, spec: QueueSpec) -> None:
        self._wire, self._copier, self._lending, self._spec = wire, copier, lending, spec
        self._tills: dict[str, Till] = {}
        self._opening = asyncio.Lock()
        self._numbers, self._prefix = itertools.count(1), secrets.token_hex(4)

    async def receive(self, consumer: Consumer, most: int, auto: bool) -> list[Delivery]:
        till = await self._till(consumer.name)
        async with till.lock:
            held = sum(one.consumer == consumer.name for one in self._lending.held.values())
            try:
                lent = await self._collect(till, consumer.name, min(most, consumer.prefetch - held))
            except BaseException:  # what was taken and not lent goes back with the channel
                await till.channel.close()
                raise
            self._lending.lend(lent, (consumer.lease or self._spec.lease).total_seconds())
            if auto:
                await self._lending.done(lent)
        return [self._delivery(one, one.receipt, one.attempt) for one in lent]

    async def peek(self, most: int) -> list[Delivery]:
        """AMQP shows a message only by handing it out: they are taken and put back."""
        till = Till(await self._wire.channel(), self._copier.name, "peek")
        found = await till.take(most)
        await till.put_back(found)
        await till.channel.close()
        return [self._delivery(one, "", one.attempt - 1) for one in (self._opened(till, "", got) for got in found)]

    def _delivery(self, lent: Lent, receipt: str, attempt: int) -> Delivery:
        return Delivery(lent.message, receipt, attempt, lent.said.sent, f"{self._spec.name}/{lent.message.id}")

    async def _till(self, consumer: str) -> Till:
        async with self._opening:
            till = self._tills.get(consumer)
            if till is None or not till.channel.open:
                self._close_idle()
                till = self._tills[consumer] = Till(await self._wire.channel(), self._copier.name, consumer)
                till.channel.at_end(lambda: self._lending.forget(till))
            return till

    def _close_idle(self) -> None:
        """Closes channels of consumers that hold nothing, if there are many."""
        busy = {one.till for one in self._lending.held.values()}
        idle = [name for name, till in self._tills.items() if till not in busy and not till.lock.locked()]
        for name in idle[: max(0, len(self._tills) - _TILLS)]:
            till = self._tills.pop(name)
            if till.channel.open:
                till.channel.tell("close")

    async def _collect(self, till: Till, consumer: str, wanted: int) -> list[Lent]:
        """As many as there are, at most those wanted."""
        good: list[Lent] = []
        while len(good) < wanted:
            found = await till.take(wanted - len(good))
            if not found:
                break
            judged = [(one, self._why_not(one)) for one in (self._opened(till, consumer, got) for got in found)]
            good += [one for one, why in judged if why is None]
            others = [(one, why) for one, why in judged if why is not None]
            if others and not await self._send_away(others):
                break
        return good

    def _opened(self, till: Till, consumer: str, got: Got) -> Lent:
        message, said = opened(got, self._copier.name, self._copier.layout.prefix, self._copier.layout.delays)
        receipt = f"{self._prefix}-{next(self._numbers)}"
        return Lent(receipt, got.tag, message, said, count_of(got, said) + 1, till, consumer)

    def _why_not(self, lent: Lent) -> str | None:
        """Why a message is not lent: it expired, it was lent often enough, or ("") its time has not come."""
        now = self._copier.now()
        if lent.said.expires and lent.said.expires <= now:
            return EXPIRED
        if lent.said.due > now + _EARLY:
            return ""
        return RAN_OUT if lent.attempt > self._spec.tries else None

    async def _send_away(self, others: Sequence[tuple[Lent, str]]) -> bool:
        """To the dead letters, or to rest. False if the broker takes nothing now: then they stay where they are."""
        left = [one for one, _ in others]
        try:
            for reason in {why for _, why in others}:
                these = [one for one, why in others if why == reason]
                letters = [one.letter(one.attempt - 1) for one in these]
                await (self._copier.bury(letters, reason) if reason else self._copier.rest(letters))
                await self._lending.done(these)
                left = [one for one in left if one not in these]
            return True
        except PenstockError:
            await self._lending.back(left, tried=False)
            return False
