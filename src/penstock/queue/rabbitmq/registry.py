"""Which queues of ours a broker has, and their settings: AMQP tells neither.

They stand in one message of the queue `penstock.specs`. Who reads or changes it holds a lock, which is a queue that belongs to a
connection alone and goes with it. If a crash leaves two such messages, the settings written last count for each queue."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson

from penstock.core.time import Clock
from penstock.errors import Damaged, PenstockError
from penstock.queue.port import QueueSpec
from penstock.queue.rabbitmq.amqp.channel import LOCKED, Channel, Closed, Fetched
from penstock.queue.rabbitmq.amqp.connection import Connection
from penstock.queue.rabbitmq.amqp.library import library, unreachable
from penstock.queue.rabbitmq.layout import OURS
from penstock.queue.rabbitmq.send.publication import Publication
from penstock.queue.rabbitmq.send.publisher import Publisher
from penstock.queue.rabbitmq.settings import CLASSIC
from penstock.queue.spec_file import decode_spec, encode_spec

_PAUSE = 0.02
_KEPT = 100  # queues that were deleted, and are remembered so that an older message does not bring them back

Entries = dict[str, tuple[int, bytes | None]]  # by name: when it was spec, and what; None: it was deleted


class Registry:
    """The settings of all queues with one prefix."""

    def __init__(self, connection: Connection, publisher: Publisher, clock: Clock) -> None:
        self._connection, self._publisher, self._clock = connection, publisher, clock
        self._queue, self._lock = f"{connection.settings.prefix}{OURS}specs", f"{connection.settings.prefix}{OURS}lock"
        self._turn = asyncio.Lock()

    async def specs(self) -> dict[str, QueueSpec]:
        async with self._held() as (channel, found):
            await self._back(channel, found)
            return _specs(_merged(found))

    async def change(self, edit: Callable[[dict[str, QueueSpec]], Any]) -> None:
        """edit: is given the settings of all queues and changes them, or raises; it may be a coroutine."""
        async with self._held() as (channel, found):
            entries = _merged(found)
            specs = _specs(entries)
            before = dict(specs)
            try:
                await edit(specs)
            except PenstockError:
                await self._back(channel, found)
                raise
            self._note(entries, before, specs)
            body, properties = _encoded(entries), library().BasicProperties(delivery_mode=2, message_id=secrets.token_hex(8))
            await self._publisher.publish([Publication("", self._queue, properties, body)], self._connection.settings.patience)
            for got in found:
                channel.tell("basic_ack", got.tag)
            await channel.ask("queue_declare", self._queue, passive=True)

    def _note(self, entries: Entries, before: dict[str, QueueSpec], after: dict[str, QueueSpec]) -> None:
        now = self._clock.now()
        for name in before.keys() | after.keys():
            if before.get(name) != after.get(name):
                last = entries[name][0] + 1 if name in entries else 0
                spec = encode_spec(after[name], secrets.token_hex(8)) if name in after else None
                entries[name] = (max(now, last), spec)
        gone = sorted((at, name) for name, (at, spec) in entries.items() if spec is None)
        for _, name in gone[:-_KEPT]:
            del entries[name]

    async def _back(self, channel: Channel, found: list[Fetched]) -> None:
        """They are in the queue again before anybody else gets the lock."""
        for got in found:
            channel.tell("basic_nack", got.tag, requeue=True)
        await channel.ask("queue_declare", self._queue, passive=True)

    @asynccontextmanager
    async def _held(self) -> AsyncIterator[tuple[Channel, list[Fetched]]]:
        async with self._turn:
            lock = await self._locked()
            try:
                channel = await self._connection.channel()
                await channel.ask("queue_declare", self._queue, durable=True, arguments={"x-queue-type": CLASSIC})
                found = []
                while (got := await channel.get(self._queue)) is not None:
                    found.append(got)
                yield channel, found
                await channel.close()
            finally:
                if lock.open:  # if not, the lock is gone with the connection
                    await lock.ask("queue_delete", self._lock)
                    await lock.close()

    async def _locked(self) -> Channel:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._connection.settings.patience
        while True:
            channel = await self._connection.channel()
            try:
                await channel.ask("queue_declare", self._lock, exclusive=True)
                return channel
            except Closed as error:
                if error.code != LOCKED:
                    raise
                if loop.time() > deadline:
                    raise unreachable(
                        self._connection.settings.where, "another process looks at the settings of queues, and does not end"
                    ) from error
            await asyncio.sleep(_PAUSE)


def _merged(found: list[Fetched]) -> Entries:
    entries: Entries = {}
    for got in found:
        for name, (at, spec) in _decoded(got.body).items():
            if name not in entries or entries[name][0] < at:
                entries[name] = (at, spec)
    return entries


def _specs(entries: Entries) -> dict[str, QueueSpec]:
    return {name: decode_spec(spec, f"{OURS}specs")[0] for name, (_, spec) in sorted(entries.items()) if spec is not None}


def _encoded(entries: Entries) -> bytes:
    return orjson.dumps({name: [at, spec.decode() if spec is not None else None] for name, (at, spec) in entries.items()})


def _decoded(body: bytes) -> Entries:
    try:
        return {name: (int(at), spec.encode() if spec is not None else None) for name, (at, spec) in orjson.loads(body).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise Damaged(f"the queue {OURS}specs of RabbitMQ does not hold the settings of queues", str(error)) from error
