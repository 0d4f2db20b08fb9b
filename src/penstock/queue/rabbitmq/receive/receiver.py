"""Receives messages from the broker and leases them; those that expired, are delayed or were tried too often are passed over."""

import asyncio
import itertools
import secrets
from collections.abc import Sequence

from penstock.errors import PenstockError
from penstock.queue.port import Consumer, Delivery, QueueSpec
from penstock.queue.rabbitmq.amqp.channel import Fetched
from penstock.queue.rabbitmq.amqp.connection import Connection
from penstock.queue.rabbitmq.amqp.envelope import count_of, decode
from penstock.queue.rabbitmq.receive.consumer_channel import ConsumerChannel
from penstock.queue.rabbitmq.receive.leases import Lease, Leases
from penstock.queue.rabbitmq.send.copier import Copier
from penstock.queue.state.machine import EXPIRED, RAN_OUT

_IDLE_CHANNELS = 32  # channels that are kept although their consumers hold nothing
_EARLY = 1_000  # microseconds by which a message may be early


class Receiver:
    """The consumers of one queue."""

    def __init__(self, connection: Connection, copier: Copier, leases: Leases, spec: QueueSpec) -> None:
        self._connection, self._copier, self._leases, self._spec = connection, copier, leases, spec
        self._channels: dict[str, ConsumerChannel] = {}
        self._opening = asyncio.Lock()
        self._numbers, self._prefix = itertools.count(1), secrets.token_hex(4)

    async def receive(self, consumer: Consumer, most: int, auto: bool) -> list[Delivery]:
        channel = await self._channel(consumer.name)
        async with channel.lock:
            held = sum(one.consumer == consumer.name for one in self._leases.held.values())
            try:
                leases = await self._collect(channel, consumer.name, min(most, consumer.prefetch - held))
            except BaseException:  # what was taken and not leased goes back with the channel
                await channel.amqp.close()
                raise
            self._leases.add(leases, (consumer.lease or self._spec.lease).total_seconds())
            if auto:
                await self._leases.done(leases)
        return [self._delivery(one, one.receipt, one.attempt) for one in leases]

    async def peek(self, most: int) -> list[Delivery]:
        """AMQP shows a message only by handing it out: they are taken and put back."""
        channel = ConsumerChannel(await self._connection.channel(), self._copier.name, "peek")
        found = await channel.take(most)
        await channel.put_back(found)
        await channel.amqp.close()
        return [self._delivery(one, "", one.attempt - 1) for one in (self._decoded(channel, "", got) for got in found)]

    def _delivery(self, lease: Lease, receipt: str, attempt: int) -> Delivery:
        return Delivery(lease.message, receipt, attempt, lease.header.sent, f"{self._spec.name}/{lease.message.id}")

    async def _channel(self, consumer: str) -> ConsumerChannel:
        async with self._opening:
            channel = self._channels.get(consumer)
            if channel is None or not channel.amqp.open:
                self._close_idle()
                channel = self._channels[consumer] = ConsumerChannel(await self._connection.channel(), self._copier.name, consumer)
                channel.amqp.at_end(lambda: self._leases.forget(channel))
            return channel

    def _close_idle(self) -> None:
        """Closes channels of consumers that hold nothing, if there are many."""
        busy = {one.channel for one in self._leases.held.values()}
        idle = [name for name, channel in self._channels.items() if channel not in busy and not channel.lock.locked()]
        for name in idle[: max(0, len(self._channels) - _IDLE_CHANNELS)]:
            channel = self._channels.pop(name)
            if channel.amqp.open:
                channel.amqp.tell("close")

    async def _collect(self, channel: ConsumerChannel, consumer: str, wanted: int) -> list[Lease]:
        """As many as there are, at most those wanted."""
        good: list[Lease] = []
        while len(good) < wanted:
            found = await channel.take(wanted - len(good))
            if not found:
                break
            judged = [(one, self._why_not_deliverable(one)) for one in (self._decoded(channel, consumer, got) for got in found)]
            good += [one for one, why in judged if why is None]
            others = [(one, why) for one, why in judged if why is not None]
            if others and not await self._send_away(others):
                break
        return good

    def _decoded(self, channel: ConsumerChannel, consumer: str, got: Fetched) -> Lease:
        message, header = decode(got, self._copier.name, self._copier.layout.prefix, self._copier.layout.delays)
        receipt = f"{self._prefix}-{next(self._numbers)}"
        return Lease(receipt, got.tag, message, header, count_of(got, header) + 1, channel, consumer)

    def _why_not_deliverable(self, lease: Lease) -> str | None:
        """Why a message is not delivered: it expired, it was delivered often enough, or ("") it is not due yet."""
        now = self._copier.now()
        if lease.header.expires and lease.header.expires <= now:
            return EXPIRED
        if lease.header.due > now + _EARLY:
            return ""
        return RAN_OUT if lease.attempt > self._spec.tries else None

    async def _send_away(self, others: Sequence[tuple[Lease, str]]) -> bool:
        """To the dead letters, or to be delayed. False if the broker takes nothing now: then they stay where they are."""
        left = [one for one, _ in others]
        try:
            for reason in {why for _, why in others}:
                these = [one for one, why in others if why == reason]
                copies = [one.copy(one.attempt - 1) for one in these]
                await (self._copier.dead_letter(copies, reason) if reason else self._copier.delay(copies))
                await self._leases.done(these)
                left = [one for one in left if one not in these]
            return True
        except PenstockError:
            await self._leases.back(left, tried=False)
            return False
