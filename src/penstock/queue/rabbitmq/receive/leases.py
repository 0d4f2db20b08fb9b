"""Leases of this process: who holds which message, and until when. The broker delivers to a connection; leases are kept here.

A message that this process holds for too long is given back by it; one of a process that dies, or hangs, by the broker."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from penstock.errors import PenstockError
from penstock.queue.port import Message, QueueSpec
from penstock.queue.rabbitmq.amqp.envelope import MessageHeader
from penstock.queue.rabbitmq.receive.consumer_channel import ConsumerChannel
from penstock.queue.rabbitmq.send.copier import CopiedMessage, Copier
from penstock.queue.state.machine import RAN_OUT


@dataclass(eq=False)
class Lease:
    """A message that this process holds."""

    receipt: str
    tag: int
    message: Message
    header: MessageHeader
    attempt: int
    channel: ConsumerChannel
    consumer: str
    until: float = 0.0

    def copy(self, count: int | None = None) -> CopiedMessage:
        return CopiedMessage(self.message, self.header, self.attempt if count is None else count)


class Leases:
    """Of one queue."""

    def __init__(self, copier: Copier, spec: QueueSpec) -> None:
        self._copier, self._spec = copier, spec
        self.held: dict[str, Lease] = {}  # by receipt
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, leases: Sequence[Lease], seconds: float) -> None:
        """They are held from now on, for so long."""
        self.held |= {one.receipt: one for one in leases}
        self.extend(leases, seconds)

    def forget(self, channel: ConsumerChannel) -> None:
        """The broker delivers again what a closed channel held."""
        for one in [one for one in self.held.values() if one.channel is channel]:
            del self.held[one.receipt]

    def running(self, receipts: Sequence[str]) -> dict[str, Lease]:
        """Those that are still held, by receipt."""
        now = asyncio.get_running_loop().time()
        found = {receipt: self.held[receipt] for receipt in receipts if receipt in self.held}
        return {receipt: one for receipt, one in found.items() if one.until > now and one.channel.amqp.open}

    async def done(self, leases: Sequence[Lease]) -> None:
        """They are off the queue."""
        channels: dict[ConsumerChannel, list[Lease]] = {}
        for one in leases:
            channels.setdefault(one.channel, []).append(one)
        for channel, ones in channels.items():
            channel.acknowledge(one.tag for one in ones)
            for one in ones:
                self.held.pop(one.receipt, None)
        for channel in channels:
            await channel.settled()

    def extend(self, leases: Sequence[Lease], seconds: float) -> None:
        loop = asyncio.get_running_loop()
        for one in leases:
            one.until = loop.time() + seconds
        if leases:
            loop.call_later(seconds, self._look_after, list(leases))

    async def give_back(self, leases: Sequence[Lease], reason: str) -> None:
        """Delivered again, or to the dead letters after the last try; counted either way."""
        last = [one for one in leases if one.attempt >= self._spec.tries]
        await self._copier.dead_letter([one.copy() for one in last], reason)
        await self.done(last)
        others = [one for one in leases if one.attempt < self._spec.tries]
        if self._copier.layout.quorum:
            await self.back(others, tried=True)
        else:
            await self.put_again(others, counted=True)

    async def untried(self, leases: Sequence[Lease]) -> None:
        """Delivered again, as if it had never been."""
        if self._copier.layout.quorum and self._copier.layout.forgiving:
            await self.back(leases, tried=False)
        else:
            await self.put_again(leases, counted=False)

    async def put_again(self, leases: Sequence[Lease], counted: bool) -> None:
        """At the end of the queue, with a count of our own; in its old place if there is no room."""
        copied = await self._copier.requeue([one.copy(one.attempt if counted else one.attempt - 1) for one in leases])
        await self.done([one for one, is_in in zip(leases, copied, strict=True) if is_in])
        await self.back([one for one, is_in in zip(leases, copied, strict=True) if not is_in], tried=counted)

    async def back(self, leases: Sequence[Lease], tried: bool) -> None:
        """The broker delivers them again, before those that were never delivered."""
        for one in sorted(leases, key=lambda one: one.tag):
            one.channel.back(one.tag, tried)
            self.held.pop(one.receipt, None)
        for channel in {one.channel for one in leases}:
            await channel.settled()

    # Inside

    def _look_after(self, leases: Sequence[Lease]) -> None:
        """Gives back those whose lease ran out."""
        now = asyncio.get_running_loop().time()
        over = [one for one in leases if one.receipt in self.held and one.until <= now]
        for one in over:
            del self.held[one.receipt]
        if over:
            task = asyncio.get_running_loop().create_task(self._run_out(over))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run_out(self, leases: Sequence[Lease]) -> None:
        with suppress(PenstockError):  # the channel is gone, and with it the lease
            try:
                await self.give_back(leases, RAN_OUT)
            except PenstockError:
                await self.back([one for one in leases if one.channel.amqp.open], tried=True)
