"""Who of this process holds which message, and until when. The broker lends to a connection; leases are kept here.

A message that this process holds for too long is given back by it; one of a process that dies, or hangs, by the broker."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from penstock.errors import PenstockError
from penstock.queue.port import Message, QueueSpec
from penstock.queue.rabbitmq.amqp.envelope import Said
from penstock.queue.rabbitmq.receive.consumer_channel import Till
from penstock.queue.rabbitmq.send.copier import Copier, Letter
from penstock.queue.state.machine import RAN_OUT


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

    def __init__(self, copier: Copier, spec: QueueSpec) -> None:
        self._copier, self._spec = copier, spec
        self.held: dict[str, Lent] = {}  # by receipt
        self._tasks: set[asyncio.Task[None]] = set()

    def lend(self, lent: Sequence[Lent], seconds: float) -> None:
        """They are held from now on, for so long."""
        self.held |= {one.receipt: one for one in lent}
        self.extend(lent, seconds)

    def forget(self, till: Till) -> None:
        """The broker lends again what a channel held that is gone."""
        for one in [one for one in self.held.values() if one.till is till]:
            del self.held[one.receipt]

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
