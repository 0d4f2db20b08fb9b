"""The channel over which one consumer receives messages of a queue, and gives them back."""

import asyncio
import itertools
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from penstock.queue.rabbitmq.amqp.channel import Channel, Fetched, got

FEW = 3  # messages up to which they are asked for one by one
_SHORT = 0.2  # seconds until messages that were seen count as taken by somebody else
_BACK = 2.0  # the same for messages that were put back
_PAUSE = 0.005


class ConsumerChannel:
    """Of one consumer of one queue."""

    def __init__(self, channel: Channel, queue: str, consumer: str) -> None:
        self.amqp, self.lock = channel, asyncio.Lock()
        self._queue, self._consumer, self._numbers = queue, consumer, itertools.count(1)
        self._tags: set[int] = set()  # all that are not settled

    async def take(self, most: int) -> list[Fetched]:
        """What is ready, at most so many."""
        found = await self._one_by_one(most) if most <= FEW else await self._burst(most)
        self._tags.update(one.tag for one in found)
        return found

    async def _one_by_one(self, most: int) -> list[Fetched]:
        found: list[Fetched] = []
        while len(found) < most and (one := await self.amqp.get(self._queue)) is not None:
            found.append(one)
        return found

    async def _burst(self, most: int) -> list[Fetched]:
        """A consumer that is there for a moment: the broker sends it as many as it may have, and it leaves."""
        most = min(most, await self.ready())
        if not most:
            return []
        found, everything = list[Fetched](), self.amqp.future()

        def come(_: Any, method: Any, properties: Any, body: bytes) -> None:
            found.append(got(method, properties, body))
            if len(found) == most and not everything.done():
                everything.set_result(None)

        name = f"{self._consumer}#{next(self._numbers)}"
        await self.amqp.ask("basic_qos", prefetch_count=most)
        await self.amqp.ask("basic_consume", self._queue, come, consumer_tag=name)
        with suppress(TimeoutError):
            await asyncio.wait_for(everything, _SHORT)
        await self.amqp.ask("basic_cancel", name)
        return found

    def acknowledge(self, tags: Iterable[int]) -> None:
        """One frame for all of them, if there is none before the last that is not theirs."""
        wanted = set(tags)
        if not wanted:
            return
        last = max(wanted)
        if all(tag in wanted for tag in self._tags if tag <= last):
            self.amqp.tell("basic_ack", last, multiple=True)
        else:
            for tag in sorted(wanted):
                self.amqp.tell("basic_ack", tag)
        self._tags -= wanted

    def back(self, tag: int, tried: bool) -> None:
        """The broker delivers it again, at once; it counts those that were tried, and before 4.3 the others, too."""
        self.amqp.tell("basic_reject" if tried else "basic_nack", tag, requeue=True)
        self._tags.discard(tag)

    async def put_back(self, found: Sequence[Fetched]) -> None:
        """As if nobody had had them. Returns when the queue counts them again: a quorum queue does so a moment later."""
        loop, there = asyncio.get_running_loop(), await self.ready()
        until = loop.time() + _BACK
        for one in found:
            self.back(one.tag, tried=False)
        while await self.ready() < there + len(found) and loop.time() < until:
            await asyncio.sleep(_PAUSE)

    async def ready(self) -> int:
        """How many messages wait."""
        return int((await self.amqp.ask("queue_declare", self._queue, passive=True)).message_count)

    async def settled(self) -> None:
        """Returns after an answer of the queue: what was said before has been heard, or the channel is known to be gone."""
        await self.ready()
