"""Queues on the log: any topic, read as a queue, while others read it as a log; format: docs/adr/0009-queues-on-the-log.md."""

import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

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
from penstock.queue.on_log.events import encode_snapshot
from penstock.queue.on_log.journal import Journal
from penstock.queue.on_log.queue import DIRECTORY, LogQueue, directory_of
from penstock.queue.on_log.state import LogQueueState
from penstock.queue.port import Message, QueueSpec
from penstock.queue.spec_file import decode_spec, encode_spec
from penstock.queue.state.clock import Now, SharedClock
from penstock.queue.state.machine import StateMachine
from penstock.queue.state.routing import FOR, takes

_KNOWN = 1.0  # seconds until queues that another process made or deleted are noticed
_SETTINGS, _ENDED = ".json", ".ended"
MAX_MESSAGE = 64 << 20  # bytes of a record, in topics that are made for queues


class _Known(NamedTuple):
    """The settings of all queues, and of those of each source, as they were a moment ago."""

    until: float
    specs: dict[str, QueueSpec]
    by_source: dict[str, list[QueueSpec]]


_NOTHING_KNOWN = _Known(0.0, {}, {})


class LogQueues:
    """The queues of an embedded log. Any number of processes may use them at once."""

    def __init__(self, log: FileLog, groups: Groups | None = None, leases: LeaseClock | None = None) -> None:
        """groups: where it is noted how far each queue has come."""
        self.log, self.groups = log, groups
        self._leases = leases or MachineClock()
        # A clock that was given is not the machine's, and nobody else sets it.
        self.clock: Clock = SharedClock(log.storage, DIRECTORY, log.clock) if isinstance(log.clock, SystemClock) else log.clock
        self.ids = Ids()
        self._open: dict[str, LogQueue] = {}
        self.sent: dict[str, float] = {}  # by source: when this process last sent to it
        self._known = _NOTHING_KNOWN

    def create(self, spec: QueueSpec) -> LogQueue:
        check_spec(spec)
        if spec.name in self.names():
            raise AlreadyThere(f"there is a queue {spec.name} already")
        topic = self._topic(spec.origin)
        self._make(spec, topic)
        with suppress(AlreadyThere):
            self._make(QueueSpec(spec.dead_letters), self._topic(spec.dead_letters))
        made = self.queue(spec.name)
        made.note_progress()
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
        self._known = _NOTHING_KNOWN
        if self.groups:
            with suppress(PenstockError):
                self.groups.forget(f"{QUEUE}{name}")

    def purge(self, name: str) -> int:
        return self.queue(name).purge()

    def now(self) -> Now:
        boot, at = self._leases.beat()
        return Now(boot, at, self.clock.now())

    def dead_letter_topic(self, spec: QueueSpec) -> Topic:
        """The topic of a queue's dead letters; it is there although somebody deleted the queue of them."""
        with suppress(AlreadyThere):
            if spec.dead_letters not in self.names():
                self._make(QueueSpec(spec.dead_letters), self._topic(spec.dead_letters))
        return self._topic(self.queue(spec.dead_letters).spec.origin)

    def route(self, name: str, source: str, messages: Sequence[Message]) -> LogQueue | None:
        """The queue whose limit counts for what is sent to a source (that of its name), if it has one. Unroutable if no queue of
        the source takes one of the messages; NotFound if the queue of this name is gone."""
        known = self._known if time.monotonic() < self._known.until else self._look_for_queues()
        if name not in known.specs:
            raise no_queue(name, known.specs)
        takers = known.by_source[source]
        if all(other.bindings for other in takers) or any(FOR in message.headers for message in messages):
            for message in messages:
                if not any(takes(other.bindings, message.route, message.headers, other.name) for other in takers):
                    raise unroutable(message, source)
        limited = any(other.name == source and other.limit.policy != "buffer" for other in takers)
        return self.queue(source) if limited else None

    def _look_for_queues(self) -> "_Known":
        """Queues that another process makes or deletes are noticed within a second."""
        specs, by_source = dict[str, QueueSpec](), dict[str, list[QueueSpec]]()
        for name in self.names():
            with suppress(NotFound):
                spec = specs[name] = self.queue(name).spec
                by_source.setdefault(spec.origin, []).append(spec)
        self._known = _Known(time.monotonic() + _KNOWN, specs, by_source)
        return self._known

    def _topic(self, name: str) -> Topic:
        try:
            return self.log.topic(name)
        except NotFound:
            with suppress(AlreadyThere):
                return self.log.create(TopicSpec(name, max_record=MAX_MESSAGE))
            return self.log.topic(name)

    def _make(self, spec: QueueSpec, topic: Topic) -> None:
        """The journal first: a queue that can be found is whole."""
        state = LogQueueState(StateMachine(spec.ordered, spec.tries), topic.id, self._beginning(spec, topic))
        with self.log.storage.lock(f"{DIRECTORY}/lock"):
            if spec.name in self.names():
                raise AlreadyThere(f"there is a queue {spec.name} already")
            self.log.storage.remove(directory_of(spec.name))  # what a crash left of one that was being made, or deleted
            Journal(self.log.storage, directory_of(spec.name)).begin(encode_snapshot(state))
            self.log.storage.publish(settings_of(spec.name), encode_spec(spec, secrets.token_hex(8)))
        self._known = _NOTHING_KNOWN

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
