"""Consumers and workers for asyncio: calls of the queue run in threads, so that the event loop never waits for a disk."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from inspect import isawaitable
from types import TracebackType

from penstock.core.time import duration
from penstock.errors import LeaseLost, PenstockError
from penstock.queue.client.prefetch import FIRST_PAUSE, Prefetch, longer
from penstock.queue.client.worker import Handler, Worked, Worker
from penstock.queue.message import LeasedMessage, Received
from penstock.queue.options import NOW, Time
from penstock.queue.port import Consumer, Delivery, QueuePort

AsyncHandler = Callable[[Received], Awaitable[object] | object]


class AsyncReceived(LeasedMessage):
    """A message that is leased to you: as Received, with `await` and `async with`."""

    def __init__(self, delivery: Delivery, prefetch: Prefetch) -> None:
        super().__init__(delivery)
        self._prefetch = prefetch

    async def ack(self) -> None:
        """It is done. LeaseLost if its lease had run out: it is delivered again."""
        await asyncio.to_thread(self._prefetch.settle, [(self, self.settlement("ack"))])

    async def nack(self, delay: Time | None = None, reason: str = "") -> None:
        """Gives it back: it is delivered again after `delay`, or goes to the dead letters if this was its last try."""
        await asyncio.to_thread(self._prefetch.settle, [(self, self.settlement("nack", delay, reason))])

    async def release(self) -> None:
        """Gives it back, without counting as a try."""
        await asyncio.to_thread(self._prefetch.settle, [(self, self.settlement("nack", NOW, tried=False))])

    async def reject(self, reason: str = "") -> None:
        """It goes to the dead letters at once."""
        await asyncio.to_thread(self._prefetch.settle, [(self, self.settlement("reject", reason=reason))])

    async def extend(self, lease: Time | None = None) -> None:
        """Its lease begins anew."""
        await asyncio.to_thread(self._prefetch.settle, [(self, self.settlement("extend", lease))])

    async def __aenter__(self) -> "AsyncReceived":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        end = self.ending(error)
        if end is None:
            return
        try:
            await asyncio.to_thread(self._prefetch.settle, [(self, end)])
        except LeaseLost:
            if error is None:
                raise


class AsyncConsumer:
    """One consumer of a queue, for the time of an `async with`; made by `Queue.consumer_async`. Several tasks may share it.

    A task that is cancelled while it waits has taken nothing: what was prefetched for it goes to the next one that asks."""

    def __init__(self, port: QueuePort, consumer: Consumer, auto: bool = False) -> None:
        self._prefetch, self._stopped = Prefetch(port, consumer, auto), False

    @property
    def name(self) -> str:
        return self._prefetch.consumer.name

    async def __aenter__(self) -> "AsyncConsumer":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stopped = True
        try:
            await asyncio.shield(asyncio.to_thread(self._prefetch.give_back))
        except PenstockError:
            if error is None:
                raise

    async def __aiter__(self) -> AsyncIterator[AsyncReceived]:
        """Messages as they come, until `stop`."""
        while not self._stopped:
            for message in await self._wait(1, None, 1 if self._prefetch.auto else self._prefetch.consumer.prefetch):
                yield message

    async def receive(self, most: int = 1, wait: Time | None = None) -> list[AsyncReceived]:
        """Messages that are ready, at most so many; if there are none, waits for as long as `wait`."""
        return await self._wait(most, 0.0 if wait is None else duration(wait, "wait").total_seconds(), most)

    async def ack(self, messages: Sequence[AsyncReceived]) -> None:
        """They are done, all in one call. LeaseLost if the leases of some had run out; the others are done nevertheless."""
        if messages:
            await asyncio.to_thread(self._prefetch.settle, [(message, message.settlement("ack")) for message in messages])

    def stop(self) -> None:
        """Ends the loop before its next message."""
        self._stopped = True

    async def _wait(self, most: int, wait: float | None, ahead: int) -> list[AsyncReceived]:
        loop, pause = asyncio.get_running_loop(), FIRST_PAUSE
        deadline = None if wait is None else loop.time() + wait
        while not self._stopped:
            await asyncio.to_thread(self._prefetch.fill, ahead)
            taken = self._prefetch.pick(most, lambda delivery: AsyncReceived(delivery, self._prefetch))
            if taken or (deadline is not None and loop.time() >= deadline):
                return taken
            await asyncio.sleep(pause if deadline is None else min(pause, max(0.0, deadline - loop.time())))
            pause = longer(pause)
        return []


def in_loop(handler: AsyncHandler) -> Handler:
    """The handler, for the threads of a worker: what it awaits runs in the event loop that this is called in."""
    loop = asyncio.get_running_loop()

    def handle(message: Received) -> object:
        result = handler(message)
        return asyncio.run_coroutine_threadsafe(_awaited(result), loop).result() if isawaitable(result) else result

    return handle


async def _awaited(result: Awaitable[object]) -> object:
    return await result


async def run(worker: Worker) -> Worked:
    """Runs it beside the event loop; when this is cancelled the worker stops, and what was begun is finished first."""
    work = asyncio.ensure_future(asyncio.to_thread(worker.run))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        worker.stop()
        await asyncio.wait([work])
        raise
