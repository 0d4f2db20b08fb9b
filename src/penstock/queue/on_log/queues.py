"""Queues on the log: any topic, read as a queue, while others read it as a log. Format: docs/adr/0009-queues-on-the-log.md."""

import secrets
import time
from collections.abc import Sequence
from contextlib import suppress

import orjson

from penstock.core.time import Clock, SystemClock
from penstock.errors import AlreadyThere, NotFound, PenstockError
from penstock.log.file.log import FileLog
from penstock.log.groups.leases import LeaseClock, MachineClock
from penstock.log.groups.port import QUEUE, Groups
from penstock.log.port import Topic, TopicSpec
from penstock.queue.checks import Ids, check_spec
from penstock.queue.dead_letters import no_queue
from penstock.queue.errors import unroutable
from penstock.queue.on_log.journal import Journal
from penstock.queue.on_log.queue import DIRECTORY, LogQueue, directory_of
from penstock.queue.on_log.share import Share
from penstock.queue.port import Message, QueueSpec
from penstock.queue.settings import decode_spec, encode_spec
from penstock.queue.state.clock import SharedClock
from penstock.queue.state.machine import Book, Now
from penstock.queue.state.routing import FOR, takes

_KNOWN = 1.0  # seconds until queues that another process made or deleted are noticed
_SETTINGS, _ENDED = ".json", ".ended"
MAX_MESSAGE = 64 << 20  # bytes of a record, in topics that are made for queues


class LogQueues:
    """The queues of an embedded log. Any number of processes may use them at once."""

    def __init__(self, log: FileLog, groups: Groups | None = None, leases: LeaseClock | None = None) -> None:
        """groups: where it is noted how far each queue has come."""
        self.log, self.groups = log, groups
        self._leases = leases or MachineClock()
        # A clock that was given is not the machine's, and nobody else sets it.
        self._clock: Clock = SharedClock(log.storage, DIRECTORY, log.clock) if isinstance(log.clock, SystemClock) else log.clock
        self.ids = Ids()
        self._open: dict[str, LogQueue] = {}
        self.sent: dict[str, float] = {}  # by source: when this process last sent to it
        self._known: tuple[float, dict[str, QueueSpec]] | None = None

    def create(self, spec: QueueSpec) -> LogQueue:
        check_spec(spec)
        if spec.name in self.names():
            raise AlreadyThere(f"there is a queue {spec.name} already")
        topic = self._topic(spec.origin)
        self._make(spec, topic)
        with suppress(AlreadyThere):
            self._make(QueueSpec(spec.dead_letters), self._topic(spec.dead_letters))
        made = self.queue(spec.name)
        made.tell()
        return made

    def queue(self, name: str) -> LogQueue:
        try:
            spec, id = decode_spec(bytes(self.log.storage.read(settings_of(name))), settings_of(name))
        except NotFound:
            raise no_queue(name, self.names()) from None
        known = self._open.get(id)
        if known is None:
            known = self._open[id] = LogQueue(self, spec, id)
        return known

    def names(self) -> list[str]:
        return sorted(name.removesuffix(_SETTINGS) for name in self.log.storage.list(DIRECTORY) if name.endswith(_SETTINGS))

    def delete(self, name: str) -> None:
        """Where it ended is noted: a queue of that name that is made again begins there."""
        queue = self.queue(name)
        topic = self._topic(queue.spec.origin)
        ended = orjson.dumps({"topic": topic.id, "next": [[p, end.next] for p, end in topic.ends().items()]})
        with self.log.storage.lock(f"{DIRECTORY}/lock"):
            self.log.storage.remove(settings_of(name))
            queue.delete()
            self.log.storage.remove(directory_of(name))
            self.log.storage.remove(f"{DIRECTORY}/{name}{_ENDED}")
            self.log.storage.publish(f"{DIRECTORY}/{name}{_ENDED}", ended)
        self._known = None
        if self.groups:
            with suppress(PenstockError):
                self.groups.forget(f"{QUEUE}{name}")

    def purge(self, name: str) -> int:
        return self.queue(name).purge()

    def now(self) -> Now:
        boot, at = self._leases.beat()
        return Now(boot, at, self._clock.now())

    def dead(self, spec: QueueSpec) -> Topic:
        """The topic of a queue's dead letters; they are there although somebody deleted the queue of them."""
        with suppress(AlreadyThere):
            if spec.dead_letters not in self.names():
                self._make(QueueSpec(spec.dead_letters), self._topic(spec.dead_letters))
        return self._topic(self.queue(spec.dead_letters).spec.origin)

    def check_routes(self, spec: QueueSpec, messages: Sequence[Message]) -> None:
        """Unroutable if there is a message that no queue of the source takes; NotFound if the queue is gone."""
        known = self._specs()
        if spec.name not in known:
            raise no_queue(spec.name, known)
        takers = [other for other in known.values() if other.origin == spec.origin]
        if all(other.bindings for other in takers) or any(FOR in message.headers for message in messages):
            for message in messages:
                if not any(takes(other.bindings, message.route, message.headers, other.name) for other in takers):
                    raise unroutable(message, spec.origin)

    def limited(self, source: str) -> LogQueue | None:
        """The queue whose limit counts for whoever sends to a source: that of its name."""
        own = self._specs().get(source)
        return self.queue(source) if own and own.origin == source and own.limit.policy != "buffer" else None

    def _specs(self) -> dict[str, QueueSpec]:
        """All queues; those that another process makes or deletes are noticed within a second."""
        if self._known is None or time.monotonic() - self._known[0] > _KNOWN:
            found: dict[str, QueueSpec] = {}
            for name in self.names():
                with suppress(NotFound):
                    found[name] = self.queue(name).spec
            self._known = (time.monotonic(), found)
        return self._known[1]

    def _topic(self, name: str) -> Topic:
        try:
            return self.log.topic(name)
        except NotFound:
            with suppress(AlreadyThere):
                return self.log.create(TopicSpec(name, max_record=MAX_MESSAGE))
            return self.log.topic(name)

    def _make(self, spec: QueueSpec, topic: Topic) -> None:
        """The journal first: a queue that can be found is whole."""
        share = Share(Book(spec.ordered, spec.tries), topic.id, self._beginning(spec, topic))
        with self.log.storage.lock(f"{DIRECTORY}/lock"):
            if spec.name in self.names():
                raise AlreadyThere(f"there is a queue {spec.name} already")
            self.log.storage.remove(directory_of(spec.name))  # what a crash left of one that was being made, or deleted
            Journal(self.log.storage, directory_of(spec.name)).begin(share.sum())
            self.log.storage.publish(settings_of(spec.name), encode_spec(spec, secrets.token_hex(8)))
        self._known = None

    def _beginning(self, spec: QueueSpec, topic: Topic) -> dict[int, int]:
        """By partition, the first record: the earliest that no earlier queue of this name had seen, or the next that comes."""
        if spec.start == "latest":
            return {partition: end.next for partition, end in topic.ends().items()}
        try:
            ended = orjson.loads(bytes(self.log.storage.read(f"{DIRECTORY}/{spec.name}{_ENDED}")))
        except NotFound:
            ended = {"topic": ""}
        seen = dict(ended["next"]) if ended["topic"] == topic.id else {}
        return {partition: max(end.first, seen.get(partition, 0)) for partition, end in topic.ends().items()}


def settings_of(name: str) -> str:
    return f"{DIRECTORY}/{name}{_SETTINGS}"
