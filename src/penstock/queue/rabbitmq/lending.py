"""Who of this process holds which message, and until when. The broker lends to a connection; leases are kept here.

A message that this process holds for too long is given back by it; one of a process that dies, or hangs, by the broker."""

import asyncio
import itertools
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from penstock.errors import PenstockError
from penstock.queue.book import EXPIRED, RAN_OUT
from penstock.queue.port import Consumer, Delivery, Message, QueueSpec
from penstock.queue.rabbitmq.channel import Got
from penstock.queue.rabbitmq.copying import Copier, Letter
from penstock.queue.rabbitmq.envelope import Said, count_of, opened
from penstock.queue.rabbitmq.taking import Till
from penstock.queue.rabbitmq.wire import Wire

_TILLS = 32  # channels that are kept although their consumers hold nothing
_EARLY = 1_000  # microseconds by which a message may be early


@dataclass(eq=False)
class Lent:
    """A message that this process holds."""

    receipt: str
    tag: int
    message: Message
    said: Said
    attempt: int
    till: Till
    consumer: str
    until: float = 0.0

    def letter(self, count: int | None = None) -> Letter:
        return Letter(self.message, self.said, self.attempt if count is None else count)


class Lending:
    """What is lent of one queue."""

    def __init__(self, wire: Wire, copier: Copier, spec: QueueSpec) -> None:
        self._wire, self._copier, self._spec = wire, copier, spec
        self._tills: dict[str, Till] = {}
        self.held: dict[str, Lent] = {}  # by receipt
        self._numbers, self._prefix = itertools.count(1), secrets.token_hex(4)
        self._tasks: set[asyncio.Task[None]] = set()

    async def receive(self, consumer: Consumer, most: int, auto: bool) -> list[Delivery]:
        till = await self._till(consumer.name)
        async with till.lock:
            wanted = min(most, consumer.prefetch - sum(one.consumer == consumer.name for one in self.held.values()))
            lent = await self._collect(till, consumer.name, wanted)
            self.held |= {one.receipt: one for one in lent}
            self.extend(lent, (consumer.lease or self._spec.lease).total_seconds())
            if auto:
                await self.done(lent)
        return [
            Delivery(one.message, one.receipt, one.attempt, one.said.sent, f"{self._spec.name}/{one.message.id}") for one in lent
        ]

    async def peek(self, most: int) -> list[Delivery]:
        """AMQP shows a message only by handing it out: they are taken and put back."""
        till = Till(await self._wire.channel(), self._copier.name, "peek")
        found = await till.take(most)
        for got in found:
            till.back(got.tag, tried=False)
        await till.settled()
        await till.channel.close()
        letters = [self._opened(till, "", got) for got in found]
        return [Delivery(one.message, "", one.attempt - 1, one.said.sent, f"{self._spec.name}/{one.message.id}") for one in letters]

    def lent(self, receipts: Sequence[str]) -> dict[str, Lent]:
        """Those that are still held, by receipt."""
        now = asyncio.get_running_loop().time()
        found = {receipt: self.held[receipt] for receipt in receipts if receipt in self.held}
        return {receipt: one for receipt, one in found.items() if one.until > now and one.till.channel.open}

    async def done(self, lent: Sequence[Lent]) -> None:
        """They are off the queue."""
        tills: dict[Till, list[Lent]] = {}
        for one in lent:
            tills.setdefault(one.till, []).append(one)
        for till, ones in tills.items():
            till.acknowledge(one.tag for one in ones)
            for one in ones:
                self.held.pop(one.receipt, None)
        for till in tills:
            await till.settled()

    def extend(self, lent: Sequence[Lent], seconds: float) -> None:
        loop = asyncio.get_running_loop()
        for one in lent:
            one.until = loop.time() + seconds
        if lent:
            loop.call_later(seconds, self._look_after, list(lent))

    async def give_back(self, lent: Sequence[Lent], reason: str) -> None:
        """Lent again, or among the dead if it was lent often enough; counted either way."""
        last = [one for one in lent if one.attempt >= self._spec.tries]
        await self._copier.bury([one.letter() for one in last], reason)
        await self.done(last)
        others = [one for one in lent if one.attempt < self._spec.tries]
        if self._copier.layout.quorum:
            await self.back(others, tried=True)
        else:
            await self.put_again(others, counted=True)

    async def untried(self, lent: Sequence[Lent]) -> None:
        """Lent again, as if nobody had had it."""
        if self._copier.layout.quorum and self._copier.layout.forgiving:
            await self.back(lent, tried=False)
        else:
            await self.put_again(lent, counted=False)

    async def put_again(self, lent: Sequence[Lent], counted: bool) -> None:
        """At the end of the line, with a count of our own; in its old place if there is no room."""
        copied = await self._copier.again([one.letter(one.attempt if counted else one.attempt - 1) for one in lent])
        await self.done([one for one, is_in in zip(lent, copied, strict=True) if is_in])
        await self.back([one for one, is_in in zip(lent, copied, strict=True) if not is_in], tried=counted)

    async def back(self, lent: Sequence[Lent], tried: bool) -> None:
        """The broker lends them again, before those that nobody had."""
        for one in sorted(lent, key=lambda one: one.tag):
            one.till.back(one.tag, tried)
            self.held.pop(one.receipt, None)
        for till in {one.till for one in lent}:
            await till.settled()

    # Inside

    async def _till(self, consumer: str) -> Till:
        till = self._tills.get(consumer)
        if till is None or not till.channel.open:
            self._close_idle()
            till = self._tills[consumer] = Till(await self._wire.channel(), self._copier.name, consumer)
            till.channel.at_end(lambda: self._forget(till))
        return till

    def _forget(self, till: Till) -> None:
        """The broker lends again what a channel held that is gone."""
        for one in [one for one in self.held.values() if one.till is till]:
            del self.held[one.receipt]

    def _close_idle(self) -> None:
        """Closes channels of consumers that hold nothing, if there are many."""
        busy = {one.till for one in self.held.values()}
        idle = [name for name, till in self._tills.items() if till not in busy and not till.lock.locked()]
        for name in idle[: max(0, len(self._tills) - _TILLS)]:
            till = self._tills.pop(name)
            if till.channel.open:
                till.channel.tell("close")

    async def _collect(self, till: Till, consumer: str, wanted: int) -> list[Lent]:
        """As many as there are, at most those wanted: past those that are not to be lent."""
        good: list[Lent] = []
        while len(good) < wanted:
            found = await till.take(wanted - len(good))
            if not found:
                break
            letters = [self._opened(till, consumer, got) for got in found]
            others = [(one, why) for one in letters if (why := self._why_not(one)) is not None]
            good += [one for one in letters if self._why_not(one) is None]
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
                await self.done(these)
                left = [one for one in left if one not in these]
            return True
        except PenstockError:
            await self.back(left, tried=False)
            return False

    def _look_after(self, lent: Sequence[Lent]) -> None:
        """Gives back those whose lease ran out."""
        now = asyncio.get_running_loop().time()
        over = [one for one in lent if one.receipt in self.held and one.until <= now]
        for one in over:
            del self.held[one.receipt]
        if over:
            task = asyncio.get_running_loop().create_task(self._run_out(over))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run_out(self, lent: Sequence[Lent]) -> None:
        with suppress(PenstockError):  # the channel is gone, and with it the lease
            try:
                await self.give_back(lent, RAN_OUT)
            except PenstockError:
                await self.back([one for one in lent if one.till.channel.open], tried=True)
