"""What a process has of one broker: two connections, and the settings of its queues."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from penstock.core.time import Clock
from penstock.queue.checks import Ids
from penstock.queue.port import QueueSpec
from penstock.queue.rabbitmq.amqp.channel import Channel
from penstock.queue.rabbitmq.amqp.connection import Connection, EventLoopThread
from penstock.queue.rabbitmq.layout import Layout
from penstock.queue.rabbitmq.registry import Registry
from penstock.queue.rabbitmq.send.publisher import Publisher
from penstock.queue.rabbitmq.settings import RabbitSettings

T = TypeVar("T")
_FRESH = 1.0  # seconds for which settings are believed


class Broker:
    """Messages are sent over one connection and taken over another: a broker short of memory stops the first alone."""

    def __init__(self, settings: RabbitSettings, clock: Clock) -> None:
        self.clock, self.ids, self.thread = clock, Ids(), EventLoopThread()
        self.connection, self._sending = Connection(self.thread, settings), Connection(self.thread, settings)
        self.publisher = Publisher(self._sending)
        self.registry = Registry(self.connection, self.publisher, clock)
        self._specs: dict[str, QueueSpec] | None = None
        self._asked = 0.0  # when that was asked for
        self._channel: Channel | None = None  # a channel for questions
        self._turn = asyncio.Lock()
        try:
            self.run(self.ask(_nothing))
        except BaseException:
            self.close()
            raise
        self.layout = Layout(settings.prefix, settings.kind, self.connection.version)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.thread.run(work)

    async def ask(self, question: Callable[[Channel], Awaitable[T]]) -> T:
        """Asks over a channel that is kept for that; a question that the broker does not like closes it."""
        async with self._turn:
            if self._channel is None or not self._channel.open:
                self._channel = await self.connection.channel()
            return await question(self._channel)

    async def with_channel(self, work: Callable[[Channel], Awaitable[T]]) -> T:
        """Calls it with a channel of its own."""
        channel = await self.connection.channel()
        try:
            return await work(channel)
        finally:
            await channel.close()

    async def specs(self, anew: bool = False) -> dict[str, QueueSpec]:
        """The settings of all queues of ours: those that are known, or asked for anew."""
        if anew or self._specs is None:
            asked = self.thread.loop.time()
            self._specs, self._asked = await self.connection.again(self.registry.specs), asked
        return self._specs

    async def known(self, lately: bool = False) -> dict[str, QueueSpec]:
        """The same; lately: not older than a moment."""
        return await self.specs(anew=lately and self.thread.loop.time() - self._asked >= _FRESH)

    async def spec(self, name: str) -> QueueSpec | None:
        """The settings of a queue, not older than a moment."""
        return (await self.known(lately=True)).get(name) or (await self.specs(anew=True)).get(name)

    async def change(self, edit: Callable[[dict[str, QueueSpec]], Awaitable[None]]) -> None:
        self._specs = None
        await self.connection.again(lambda: self.registry.change(edit))

    def close(self) -> None:
        async def end() -> None:
            await self._sending.close()
            await self.connection.close()

        self.run(end())
        self.thread.close()


async def _nothing(_: Channel) -> None:
    pass
