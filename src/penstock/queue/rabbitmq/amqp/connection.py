"""Connections to the broker, in a thread of their own that answers heartbeats while nobody calls."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from penstock.errors import LogError
from penstock.queue.rabbitmq.amqp.channel import Channel, Lost, bring
from penstock.queue.rabbitmq.amqp.library import library, reason_of, unreachable
from penstock.queue.rabbitmq.settings import RabbitSettings

T = TypeVar("T")
_PAUSE, _LONGEST = 0.02, 0.5  # seconds between two attempts to connect
_HOPELESS = ("AuthenticationError", "ProbableAuthenticationError", "ProbableAccessDeniedError", "IncompatibleProtocolError")


class EventLoopThread:
    """The thread of the event loop that all connections use; callers in other threads wait for its results."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, name="penstock-rabbitmq", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        if not self._thread.is_alive():
            work.close()
            raise Lost("the connection to RabbitMQ was closed")
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def _work(self) -> None:
        try:
            self.loop.run_forever()
        finally:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()


class Connection:
    """One connection, made when it is needed, and anew when it was lost."""

    def __init__(self, thread: EventLoopThread, settings: RabbitSettings) -> None:
        self._loop, self.settings = thread.loop, settings
        self._amqp: Any = None
        self._opening = asyncio.Lock()
        self.blocked = ""  # why the broker takes no messages, while it takes none
        self.version: tuple[int, ...] = ()
        self._turn: asyncio.Future[None] | None = None

    async def channel(self) -> Channel:
        """A new channel. LogError if the broker cannot be reached for as long as patience says."""
        deadline, pause = self._loop.time() + self.settings.patience, _PAUSE
        while True:
            try:
                return await self._channel(await self._connected())
            except Lost as error:
                if self._loop.time() > deadline:
                    raise unreachable(self.settings.where, error.detail[0] if error.detail else error.what) from error
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST)

    async def again(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Does what may be done twice, once more when the connection broke in the middle of it."""
        deadline = self._loop.time() + self.settings.patience
        while True:
            try:
                return await work()
            except Lost as error:
                if self._loop.time() > deadline:
                    raise unreachable(self.settings.where, error.detail[0] if error.detail else error.what) from error
                await asyncio.sleep(_PAUSE)

    async def unblocked(self, seconds: float) -> bool:
        """Whether the broker takes messages, now or within so many seconds."""
        if self.blocked and seconds > 0:
            if self._turn is None or self._turn.done():
                self._turn = self._loop.create_future()
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._turn), seconds)
        return not self.blocked

    async def close(self) -> None:
        if self._amqp is not None and self._amqp.is_open:
            ended = self._loop.create_future()
            self._amqp.add_on_close_callback(lambda *_: bring(ended, None))
            self._amqp.close()
            with suppress(TimeoutError):
                await asyncio.wait_for(ended, 5)

    async def _connected(self) -> Any:
        async with self._opening:
            if self._amqp is None or not self._amqp.is_open:
                self._amqp = await self._connect()
            return self._amqp

    async def _connect(self) -> Any:
        done = self._loop.create_future()
        pika, parameters = library(), self.settings.parameters()
        pika.adapters.asyncio_connection.AsyncioConnection.create_connection(
            parameters, on_done=lambda result: bring(done, result), custom_ioloop=self._loop
        )
        found = await done
        if isinstance(found, BaseException):
            raise self._failure(found)
        found.add_on_connection_blocked_callback(lambda _, frame: self._block(frame.method.reason or "it takes no messages"))
        found.add_on_connection_unblocked_callback(lambda *_: self._block(""))
        found.add_on_close_callback(lambda *_: self._block(""))
        version = str(found.server_properties.get("version", "0")).split("-")[0].split("+")[0]
        self.version = tuple(int(part) for part in version.split(".") if part.isdecimal())
        return found

    def _failure(self, error: BaseException) -> LogError:
        """Asking again helps against a broker that is unreachable, or killed while it is asked, not against one that says no."""
        reason = reason_of(error)
        if reason.split(":")[0] in _HOPELESS and ConnectionResetError.__name__ not in reason:
            return LogError(
                f"RabbitMQ at {self.settings.where} does not let user {self.settings.user or 'guest'} in",
                f"vhost {self.settings.vhost}: {reason}",
                hint="check user, password and vhost of the address",
            )
        return Lost("no connection", reason)

    async def _channel(self, connection: Any) -> Channel:
        opened = self._loop.create_future()
        try:
            raw = connection.channel(on_open_callback=lambda _: bring(opened, True))
        except library().exceptions.AMQPError as error:
            raise Lost("the connection broke", reason_of(error)) from error
        channel = Channel(raw, self._loop)
        channel.at_end(lambda: bring(opened, False))
        if not await opened:
            raise channel.end or Lost("the channel was closed")
        return channel

    def _block(self, why: str) -> None:
        self.blocked = why
        if not why and self._turn is not None:
            bring(self._turn, None)
