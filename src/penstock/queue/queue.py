"""A queue as users see it."""

import asyncio
from collections.abc import Iterable
from functools import partial
from inspect import iscoroutinefunction
from pathlib import Path
from types import TracebackType
from typing import Unpack

from penstock.core.time import duration
from penstock.errors import AlreadyThere, BadInput, NotFound
from penstock.queue.batches import batches
from penstock.queue.client.aio import AsyncConsumer, AsyncHandler, in_loop, run
from penstock.queue.client.consumer import QueueConsumer, consumer_of
from penstock.queue.client.worker import Handler, Worked, Worker
from penstock.queue.message import StoredMessage
from penstock.queue.moving import Edit, Moved, Plan, Where, carry_out, preview
from penstock.queue.open import Closing, open_queues
from penstock.queue.options import Body, MessageOptions, QueueOptions, Time, WorkOptions, message_of, spec_of
from penstock.queue.port import Message, QueuePort, QueueSpec, QueuesPort, QueueState

WAIT = "10 seconds"  # for room, where a queue pushes back


class Queue:
    """A queue of messages: each is leased to one consumer at a time, until one of them acknowledges it.

    >>> emails = Queue.open("emails")  # doctest: +SKIP
    >>> emails.send({"to": "ann@example.com"}, delay="1 minute")  # doctest: +SKIP

    Safe to use from several threads; on the log and on RabbitMQ from several processes. `close` it, or use it in a `with`, where
    it has a connection."""

    def __init__(self, port: QueuePort, queues: QueuesPort) -> None:
        self.port, self._queues = port, queues

    @classmethod
    def open(cls, name: str, at: str | None = None, home: Path | None = None) -> "Queue":
        """The queue of this name, made with default settings if it is not there. at: `memory:` or `amqp://host`; by default what
        PENSTOCK_QUEUES says, else the log of this home."""
        queues = open_queues(at, home)
        try:
            return cls(queues.queue(name), queues)
        except NotFound:
            try:
                return cls(queues.create(QueueSpec(name)), queues)
            except AlreadyThere:  # somebody else made it just now
                return cls(queues.queue(name), queues)

    @classmethod
    def create(cls, name: str, *, at: str | None = None, home: Path | None = None, **settings: Unpack[QueueOptions]) -> "Queue":
        """Makes a queue with these settings: see QueueSpec. AlreadyThere if there is one of that name.

        >>> Queue.create("encode", lease="10 minutes", tries=3, ordered=True)  # doctest: +SKIP
        >>> Queue.create("packing", source="orders", bindings=["orders.*.eu"])  # doctest: +SKIP"""
        queues = open_queues(at, home)
        return cls(queues.create(spec_of(name, settings)), queues)

    def __enter__(self) -> "Queue":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection to the broker, if there is one: what this process holds is delivered again."""
        if isinstance(self._queues, Closing):
            self._queues.close()

    @property
    def name(self) -> str:
        return self.port.spec.name

    @property
    def spec(self) -> QueueSpec:
        return self.port.spec

    @property
    def dead_letters(self) -> "Queue":
        """The queue of the messages that failed."""
        return Queue(self._queues.queue(self.spec.dead_letters), self._queues)

    def state(self) -> QueueState:
        """How many messages are ready, delayed and leased, who holds them, and the counts since the beginning."""
        return self.port.state()

    def peek(self, most: int = 10) -> list[StoredMessage]:
        """The first messages that nobody holds; they stay where they are."""
        return [StoredMessage(delivery) for delivery in self.port.peek(most)]

    def purge(self) -> int:
        """Removes all messages that nobody holds; how many there were."""
        return self._queues.purge(self.name)

    # Sending

    def send(self, body: Body | Message, *, wait: Time = WAIT, **options: Unpack[MessageOptions]) -> str | None:
        """Sends a message: bytes, text, or a dict, which goes as JSON. Its id; None if the queue dropped it. As durable as the
        broker makes it when this returns: on the log, on disk. Full if the queue pushed back for as long as `wait`."""
        return self.port.send([message_of(body, options)], duration(wait, "wait").total_seconds())[0]

    def send_many(
        self, bodies: Iterable[Body | Message], *, wait: Time = WAIT, **options: Unpack[MessageOptions]
    ) -> list[str | None]:
        """Sends messages, in their order, in batches; each batch is in as a whole or not at all. The options are those of all
        bodies that are not a Message. Full or Unroutable leave the batches before that one in the queue."""
        if options.get("id"):
            raise BadInput("many messages cannot have one id", hint="send Message(body, id=…) for each")
        ids: list[str | None] = []
        for batch in batches(message_of(body, options) for body in bodies):
            ids += self.port.send(batch, duration(wait, "wait").total_seconds())
        return ids

    async def send_async(self, body: Body | Message, *, wait: Time = WAIT, **options: Unpack[MessageOptions]) -> str | None:
        """`send`, in a thread. If it is cancelled meanwhile, the message may be in the queue or not."""
        return await asyncio.to_thread(partial(self.send, body, wait=wait, **options))

    # Receiving

    def consumer(self, prefetch: int = 10, lease: Time | None = None, auto: bool = False, name: str | None = None) -> QueueConsumer:
        """A consumer, for a `with`. prefetch: how many messages it may hold at once. lease: how long it has each; by
        default what the queue's settings say. auto: they are acked as they are handed out, whatever becomes of them."""
        return QueueConsumer(self.port, consumer_of(name, prefetch, lease), auto)

    def consumer_async(
        self, prefetch: int = 10, lease: Time | None = None, auto: bool = False, name: str | None = None
    ) -> AsyncConsumer:
        """The same for an `async with`."""
        return AsyncConsumer(self.port, consumer_of(name, prefetch, lease), auto)

    def worker(self, handler: Handler, workers: int = 4, **settings: Unpack[WorkOptions]) -> Worker:
        """What `work` runs, with `run()` and `stop()`."""
        if iscoroutinefunction(handler):
            raise BadInput("the handler is a coroutine", hint="use await queue.work_async(handler)")
        return Worker(self.port, handler, workers, settings)

    def work(self, handler: Handler, workers: int = 4, **settings: Unpack[WorkOptions]) -> Worked:
        """Calls the handler for every message, in so many threads, until stopped by SIGINT or SIGTERM; what was begun is finished.

        A message is acked when the handler returns. When it raises, it is given back and delayed: `retry` long (by default what the
        queue's settings say, else a second), and twice as long each time; the last time it becomes a dead letter with the
        exception's text and the last lines of its traceback. `Reject("why")` makes it one at once. Leases are extended while the
        handler runs. until_empty: until nothing is ready, delayed or leased any more."""
        return self.worker(handler, workers, **settings).run()

    async def work_async(self, handler: AsyncHandler, workers: int = 4, **settings: Unpack[WorkOptions]) -> Worked:
        """The same for a coroutine, so many at once in this event loop; calls of the queue run in threads. When it is cancelled,
        what was begun is finished first."""
        return await run(self.worker(in_loop(handler), workers, **settings))

    # Moving

    def move(
        self,
        to: "Queue | str",
        *,
        edit: Edit | None = None,
        where: Where | None = None,
        most: int | None = None,
        dry_run: bool = False,
    ) -> Moved:
        """Moves messages that nobody holds to another queue, and to that one alone: at least once, with their ids. edit: gives the
        new body (or a Message); None leaves a message here, as `where` does. Delays and expiries stay behind."""
        name = to if isinstance(to, str) else to.name
        return self._move(Plan(name, edit, where, most, revive=False), to, dry_run)

    def redrive(
        self,
        to: "Queue | str | None" = None,
        *,
        edit: Edit | None = None,
        where: Where | None = None,
        most: int | None = None,
        dry_run: bool = False,
    ) -> Moved:
        """Sends these dead letters back, each to the queue that it died in (or to `to`), without the header that says why: at
        least once, with their ids. dry_run: shows what would be done, and does nothing.

        >>> emails.dead_letters.redrive(where=lambda m: "timeout" in m.dead.reason)  # doctest: +SKIP"""
        name = to.name if isinstance(to, Queue) else to
        return self._move(Plan(name, edit, where, most), to, dry_run)

    def _move(self, plan: Plan, to: "Queue | str | None", dry_run: bool) -> Moved:
        if plan.most is not None and plan.most < 1:
            raise BadInput(f"{plan.most} messages cannot be moved", hint="most is at least 1")
        if plan.to == self.name:
            raise BadInput(f"queue {self.name} cannot be moved to itself")
        target = self._queues.queue if not isinstance(to, Queue) else lambda name: to.port
        if plan.to is not None:
            target(plan.to)  # NotFound before anything is done
        return preview(self.port, plan) if dry_run else carry_out(self.port, target, plan, duration(WAIT, "wait").total_seconds())
