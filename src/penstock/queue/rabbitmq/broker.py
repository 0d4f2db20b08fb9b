"""All that a process has of one broker: two connections, and what is known of its queues."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from penstock.core.time import Clock
from penstock.queue.checks import Ids
from penstock.queue.port import QueueSpec
from penstock.queue.rabbitmq.amqp.channel import Channel
from penstock.queue.rabbitmq.amqp.connection import Line, Wire
from penstock.queue.rabbitmq.layout import Layout
from penstock.queue.rabbitmq.registry import Registry
from penstock.queue.rabbitmq.send.publisher import Publisher
from penstock.queue.rabbitmq.settings import RabbitSettings

T = TypeVar("T")
_FRESH = 1.0  # seconds for which settings are believed


class Broker:
    """Messages are sent over one connection and taken over another: a broker short of memory stops the first alone."""

    def __init__(self, settings: RabbitSettings, clock: Clock) -> None:
        self.clock, self.ids, self.line = clock, Ids(), Line()
        self.wire, self._outward = Wire(self.line, settings), Wire(self.line, settings)
        self.publisher = Publisher(self._outward)
        self.registry = Registry(self.wire, self.publisher, clock)
        self._specs: dict[str, QueueSpec] | None = None
        self._asked = 0.0  # when that was asked for
        self._desk: Channel | None = None  # a channel for questions
        self._turn = asyncio.Lock()
        try:
            self.run(self.asking(_nothing))
        except BaseException:
            self.close()
            raise
        self.layout = Layout(settings.prefix, settings.kind, self.wire.version)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.line.run(work)

    async def asking(self, question: Callable[[Channel], Awaitable[T]]) -> T:
        """Asks over a channel that is kept for that; a question that the broker does not like closes it."""
        async with self._turn:
            if self._desk is None or not self._desk.open:
                self._desk = await self.wire.channel()
            return await question(self._desk)

    async def step(self, work: Callable[[Channel], Awaitable[T]]) -> T:
        """Does something over a channel of its own."""
        channel = await self.wire.channel()
        try:
            return await work(channel)
        finally:
            await channel.close()

    async def specs(self, anew: bool = False) -> dict[str, QueueSpec]:
        """The settings of all queues of ours: those that are known, or asked for anew."""
        if anew or self._specs is None:
            asked = self.line.loop.time()
            self._specs, self._asked = await self.wire.again(self.registry.specs), asked
        return self._specs

    async def known(self, lately: bool = False) -> dict[str, QueueSpec]:
        """The same; lately: not older than a moment."""
        return await self.specs(anew=lately and self.line.loop.time() - self._asked >= _FRESH)

    async def spec(self, name: str) -> QueueSpec | None:
        """The settings of a queue, not older than a moment."""
        return (await self.known(lately=True)).get(name) or (await self.specs(anew=True)).get(name)

    async def change(self, edit: Callable[[dict[str, QueueSpec]], Awaitable[None]]) -> None:
        self._specs = None
        await self.wire.again(lambda: self.registry.change(edit))

    def close(self) -> None:
        async def end() -> None:
            await self._outward.close()
            await self.wire.close()

        self.run(end())
        self.line.close()


async def _nothing(_: Channel) -> None:
    pass
