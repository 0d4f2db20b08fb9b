"""A channel whose answers can be awaited; whoever waits hears when it is closed."""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.errors import LogError
from penstock.queue.rabbitmq.amqp.library import library, reason_of

NOT_FOUND, LOCKED, DIFFERENT = 404, 405, 406  # codes of the broker


class Lost(LogError):
    """The connection, or this channel, is gone. What was asked may have been done or not."""


class Closed(LogError):
    """The broker did not want what it was asked, and closed the channel."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"RabbitMQ refused: {text}")
        self.code, self.text = code, text


class Fetched(NamedTuple):
    """What the broker handed out."""

    tag: int
    redelivered: bool
    exchange: str
    routing_key: str
    properties: Any
    body: bytes


class Channel:
    """One channel. Used in the thread of its connection only."""

    def __init__(self, raw: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.raw, self._loop = raw, loop
        self.end: Lost | Closed | None = None
        self._waiting: set[asyncio.Future[Any]] = set()
        self._at_end: list[Callable[[], None]] = []
        raw.add_on_close_callback(self._closed)

    @property
    def open(self) -> bool:
        return self.end is None and bool(self.raw.is_open)

    def at_end(self, call: Callable[[], None]) -> None:
        self._at_end.append(call)

    def future(self) -> "asyncio.Future[Any]":
        """One that fails when the channel ends."""
        if not self.open:
            raise self.end or Lost("the connection to RabbitMQ is closed")
        future = self._loop.create_future()
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        return future

    async def ask(self, method: str, *arguments: Any, **named: Any) -> Any:
        """The answer to a method."""
        future = self.future()
        self.tell(method, *arguments, callback=lambda frame: bring(future, frame.method), **named)
        return await future

    def tell(self, method: str, *arguments: Any, **named: Any) -> None:
        """Sends a method that has no answer."""
        try:
            getattr(self.raw, method)(*arguments, **named)
        except library().exceptions.AMQPError as error:
            raise self.end or Lost("the connection to RabbitMQ is gone", reason_of(error)) from error

    async def get(self, queue: str) -> Fetched | None:
        """The next message of a queue, if there is one."""
        future = self.future()
        empty = library().spec.Basic.GetEmpty

        def found(_: Any, method: Any, properties: Any, body: bytes) -> None:
            self.raw.callbacks.remove(self.raw.channel_number, empty, nothing)
            bring(future, got(method, properties, body))

        def nothing(_: Any) -> None:
            bring(future, None)

        self.raw.add_callback(nothing, [empty])
        self.tell("basic_get", queue, callback=found)
        result: Fetched | None = await future
        return result

    async def close(self) -> None:
        """What it holds goes back to the queues."""
        if self.open:
            ended = self._loop.create_future()
            self.at_end(lambda: bring(ended, None))
            self.tell("close")
            await ended

    def _closed(self, _: Any, reason: Any) -> None:
        by_broker = isinstance(reason, library().exceptions.ChannelClosedByBroker)
        self.end = Closed(reason.reply_code, reason.reply_text) if by_broker else Lost("the connection broke", reason_of(reason))
        for future in list(self._waiting):
            if not future.done():
                future.set_exception(self.end)
        for call in self._at_end:
            call()


def bring(future: "asyncio.Future[Any]", result: Any) -> None:
    """Its result, unless it has one, or nobody waits any more."""
    if not future.done():
        future.set_result(result)


def got(method: Any, properties: Any, body: bytes) -> Fetched:
    return Fetched(method.delivery_tag, method.redelivered, method.exchange, method.routing_key, properties, body)
