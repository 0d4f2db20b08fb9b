"""The queues of a RabbitMQ."""

import os
import threading
import weakref
from contextlib import suppress
from types import TracebackType
from typing import Self

from penstock.core.time import Clock, SystemClock
from penstock.errors import AlreadyThere
from penstock.queue.checks import check_spec
from penstock.queue.dead_letters import no_queue
from penstock.queue.port import QueueSpec
from penstock.queue.rabbitmq.amqp.channel import NOT_FOUND, Channel, Closed
from penstock.queue.rabbitmq.broker import Broker
from penstock.queue.rabbitmq.layout import check_layout
from penstock.queue.rabbitmq.queue import RabbitQueue
from penstock.queue.rabbitmq.settings import RabbitSettings

_ALL: "weakref.WeakSet[RabbitQueues]" = weakref.WeakSet()


def _forked() -> None:
    for queues in _ALL:
        queues.forked()


os.register_at_fork(after_in_child=_forked)


class RabbitQueues:
    """The queues of one vhost, or those of it whose names begin with a prefix. Any number of processes may use them at once.

    >>> with RabbitQueues("amqp://shop@rabbit/sales?password=env:RABBIT_PASSWORD") as queues:  # doctest: +SKIP
    ...     queues.create(QueueSpec("emails")).send([Message(b"hello")])

    A queue that another program made can be opened, sent to and read, too; `names` knows only those made here."""

    def __init__(self, url: str | RabbitSettings, clock: Clock | None = None) -> None:
        self.settings = RabbitSettings.of(url) if isinstance(url, str) else url
        self._clock = clock or SystemClock()
        self._broker: Broker | None = None
        self._pid, self._guard = os.getpid(), threading.Lock()
        self._parents: list[Broker | None] = []  # kept, and never touched
        _ALL.add(self)
        self._open: dict[str, RabbitQueue] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connections: what this process holds is delivered again."""
        if self._broker is not None and self._pid == os.getpid():
            self._broker.close()
        self._broker, self._open = None, {}

    def forked(self) -> None:
        """Called in a child: another thread may have held this when the process was forked."""
        self._guard = threading.Lock()

    def create(self, spec: QueueSpec) -> RabbitQueue:
        check_spec(spec)
        check_layout(spec)
        broker, begun = self._connected(), False

        async def make(specs: dict[str, QueueSpec]) -> None:
            nonlocal begun
            if spec.name in specs and not begun:  # after a broken connection it may be the one that was just made
                raise AlreadyThere(f"there is a queue {spec.name} already")
            begun = True
            await broker.with_channel(lambda channel: broker.layout.declare(channel, spec))
            with suppress(AlreadyThere):  # any queue will do
                if spec.dead_letters not in specs:
                    await broker.with_channel(lambda channel: broker.layout.declare_dead_letters(channel, spec.dead_letters))
            specs[spec.name] = spec
            specs.setdefault(spec.dead_letters, QueueSpec(spec.dead_letters))

        broker.run(broker.change(make))
        return self._opened(spec, ours=True)

    def queue(self, name: str) -> RabbitQueue:
        broker = self._connected()
        is_there = broker.run(broker.connection.again(lambda: self._is_there(name)))
        spec = broker.run(broker.spec(name)) if is_there else None
        if not is_there:
            raise no_queue(name, broker.run(broker.specs(anew=True)))
        return self._opened(spec or QueueSpec(name), ours=spec is not None)

    def names(self) -> list[str]:
        broker = self._connected()
        return sorted(broker.run(broker.specs(anew=True)))

    def delete(self, name: str) -> None:
        broker, gone = self._connected(), list[QueueSpec]()

        async def remove(specs: dict[str, QueueSpec]) -> None:
            if name not in specs and not gone:
                raise no_queue(name, specs)
            spec = specs.pop(name) if name in specs else gone[0]
            gone.append(spec)
            last = all(other.origin != spec.origin for other in specs.values())
            await broker.with_channel(lambda channel: broker.layout.delete(channel, spec, last))

        broker.run(broker.change(remove))
        self._open.pop(name, None)

    def purge(self, name: str) -> int:
        """Delayed messages stay: they are in another queue."""
        queue, broker = self.queue(name), self._connected()

        async def ask(channel: Channel) -> int:
            return int((await channel.ask("queue_purge", broker.layout.name(queue.spec.name))).message_count)

        purged = broker.run(broker.connection.again(lambda: broker.ask(ask)))
        queue.count("purged", purged)
        return purged

    def _connected(self) -> Broker:
        with self._guard:
            if self._pid != os.getpid():  # after a fork the connections are the parent's, who goes on with them
                self._parents.append(self._broker)
                self._broker, self._pid = None, os.getpid()
            if self._broker is None:
                self._broker = Broker(self.settings, self._clock)
            return self._broker

    def _opened(self, spec: QueueSpec, ours: bool) -> RabbitQueue:
        known = self._open.get(spec.name)
        if known is None or known.spec != spec:
            known = self._open[spec.name] = RabbitQueue(self._connected, spec, ours)
        return known

    async def _is_there(self, name: str) -> bool:
        broker = self._connected()

        async def ask(channel: Channel) -> bool:
            await channel.ask("queue_declare", broker.layout.name(name), passive=True)
            return True

        try:
            return await broker.ask(ask)
        except Closed as error:
            if error.code != NOT_FOUND:
                raise
            return False
