"""The client of a process: opened once per broker, never carried over a fork; its errors are translated into ours."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

from penstock.errors import AlreadyThere, LogError, NotFound, OffsetGone, Passing, PenstockError, install
from penstock.log.kafka.reaching import Contact
from penstock.log.kafka.settings import PATIENCE as PATIENCE
from penstock.log.kafka.settings import KafkaSettings

_LOOK = 0.5  # seconds for a look at who leads what
PROMPT = 5.0  # seconds for one request: one that went into a connection that broke is asked again
_LOGGER = logging.getLogger("penstock.kafka")
_LOGGER.addHandler(logging.NullHandler())
_EXTRA = "Kafka's client is not installed"

T = TypeVar("T")


def library() -> Any:
    """The module confluent_kafka, loaded when a Kafka log is first used."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        raise LogError(_EXTRA, str(error), hint=install("confluent-kafka", "fastavro")) from error
    return confluent_kafka


def new_producer(settings: KafkaSettings, options: dict[str, Any]) -> Any:
    """A producer whose errors come from its calls alone: none is raised out of a callback, none is printed."""
    return library().Producer(settings.client(**options, **quiet()))


def quiet() -> dict[str, Any]:
    """Settings of a client that raises nothing out of a callback, and prints nothing."""
    return {"error_cb": lambda error: None, "logger": _LOGGER}


class Described(NamedTuple):
    """A topic as the broker has it."""

    id: str
    partitions: int


class PerProcess:
    """Things of this process by key. After a fork the child starts with none; those of its parent are kept, but never touched."""

    def __init__(self) -> None:
        self._things: dict[Any, Any] = {}
        self._parents: list[Any] = []
        self._guard = threading.RLock()
        os.register_at_fork(after_in_child=self._leave)

    def get(self, key: Any, make: Callable[[], T]) -> T:
        with self._guard:
            if key not in self._things:
                self._things[key] = make()
            found: T = self._things[key]
            return found

    def find(self, key: Any) -> Any | None:
        """The thing, if there is one."""
        with self._guard:
            return self._things.get(key)

    def take(self, key: Any) -> Any | None:
        """The thing, which from now on is the caller's alone; None if there is none."""
        with self._guard:
            return self._things.pop(key, None)

    def give(self, key: Any, thing: Any, most: int) -> list[Any]:
        """Puts it there for the next one; returns what had to make room."""
        with self._guard:
            out = [self._things.pop(key)] if key in self._things else []
            self._things[key] = thing
            while len(self._things) > most:
                out.append(self._things.pop(next(iter(self._things))))
            return out

    def drop(self, key: Any, close: Callable[[Any], None]) -> None:
        found = self.take(key)
        if found is not None:
            close(found)

    def held(self) -> list[Any]:
        with self._guard:
            return list(self._things)

    def _leave(self) -> None:
        self._parents.append(self._things)
        self._things, self._guard = {}, threading.RLock()


_ADMINS = PerProcess()
_COORDINATED = PerProcess()
NEVER_THERE = 3600.0  # seconds: the time-out of requests to coordinators, see `coordinated`
_PRODUCERS = PerProcess()
_SINGLE = {"enable.idempotence": True, "linger.ms": 0, "message.timeout.ms": int(PATIENCE * 1000), "message.max.bytes": 64 << 20}


class Reached(NamedTuple):
    """A client for questions, and what it has heard of its broker."""

    client: Any
    contact: Contact


def admin(settings: KafkaSettings) -> Any:
    """This process's client for questions; the broker has answered it before."""
    with translated(settings):
        reached = _ADMINS.get(settings.connection, lambda: _new_admin(settings))
        if not reached.contact.met:
            try:
                reached.contact.greet(reached.client, library().KafkaException)
            except LogError:
                _ADMINS.take(settings.connection)  # the next one looks up passwords and addresses anew
                raise
        return reached.client


def _new_admin(settings: KafkaSettings) -> Reached:
    settings.warn_of_plain_text()
    contact = Contact(settings.servers, settings.get("security") or "plaintext")
    return Reached(library().admin.AdminClient(settings.client(error_cb=contact.hear, logger=_LOGGER)), contact)


def coordinated(settings: KafkaSettings, ask: Callable[[Any], "Future[T]"]) -> T:
    """Asks the coordinator of a group: ask gets a client and returns the one future of its request.

    The library ends the process, or hangs, when it finds the coordinator of a request that has timed out inside it (librdkafka
    4605). So these requests have a client of their own and never time out there: one that is not answered in time is given up with
    its client."""

    def once() -> T:
        admin(settings)  # the broker is there
        client = _COORDINATED.get(settings.connection, lambda: _new_admin(settings).client)
        try:
            return ask(client).result(PROMPT)
        except TimeoutError:
            _COORDINATED.take(settings.connection)
            raise

    return insisted(settings, "", once)


def describe(settings: KafkaSettings, name: str) -> Described | None:
    """The topic's id and number of partitions as the broker has them now; None if there is no such topic."""
    return look(settings, {name: ()})[name].topic


def topic_names(settings: KafkaSettings) -> list[str]:
    """All topics of the broker."""
    return insisted(settings, "", lambda: list(admin(settings).list_topics(timeout=PROMPT).topics))


class Bounds(NamedTuple):
    """A partition now."""

    first: int
    end: int  # behind its last record
    newest: int  # the greatest time of a record in milliseconds, -1 if there is none, or nobody asked


class Looked(NamedTuple):
    """A topic now, and some of its partitions."""

    topic: Described | None  # None if there is no such topic
    bounds: dict[int, Bounds]  # empty if it has not all of those that were asked for


def look(settings: KafkaSettings, wanted: Mapping[str, Sequence[int]], *, newest: bool = False) -> dict[str, Looked]:
    """Topics, each with the bounds of these of its partitions, as committed records have them: all is asked for at once, in one way
    to the broker and back. newest: with the times of their newest records."""

    def ask() -> dict[str, Looked]:
        topics = admin(settings).describe_topics(library().TopicCollection(list(wanted)), request_timeout=PROMPT)
        bounds = {name: _ask_bounds(settings, name, numbers, True, newest) for name, numbers in wanted.items() if numbers}
        found = {name: Looked(_described(settings, name, topics[name]), {}) for name in wanted}
        for name, told in bounds.items():
            topic = found[name].topic
            if topic and max(wanted[name]) < topic.partitions:
                found[name].bounds.update(_told(settings, name, told))
        return found

    return insisted(settings, " and ".join(wanted), ask)


def _told(settings: KafkaSettings, name: str, bounds: Callable[[], dict[int, Bounds]]) -> dict[int, Bounds]:
    """The bounds of a topic that is there. One that is being made, or deleted, may not be there by this answer: what passes."""
    try:
        with translated(settings, name):
            return bounds()
    except NotFound as error:
        kafka = library()
        raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError.LEADER_NOT_AVAILABLE, error.what)) from error


def _described(settings: KafkaSettings, name: str, asked: "Future[Any]") -> Described | None:
    try:
        found = answer(settings, asked, name)
    except NotFound:
        return None
    id = found.topic_id
    number = (id.get_most_significant_bits() % 2**64) << 64 | id.get_least_significant_bits() % 2**64
    return Described(f"{number:032x}", len(found.partitions))


def offsets(settings: KafkaSettings, name: str, partitions: Sequence[int], *, committed: bool = True) -> dict[int, Bounds]:
    """The bounds of partitions. committed: only up to where the first open transaction begins."""
    return insisted(settings, name, lambda: _ask_bounds(settings, name, partitions, committed, True)())


def _ask_bounds(
    settings: KafkaSettings, name: str, partitions: Sequence[int], committed: bool, newest: bool
) -> Callable[[], dict[int, Bounds]]:
    """Asks now; what it returns waits for the answers."""
    kafka = library()
    level = kafka.IsolationLevel.READ_COMMITTED if committed else kafka.IsolationLevel.READ_UNCOMMITTED
    spec = kafka.admin.OffsetSpec
    asked = []
    for what in (spec.earliest(), spec.latest(), *([spec.max_timestamp()] if newest else ())):
        wanted = {kafka.TopicPartition(name, p): what for p in partitions}
        asked.append(admin(settings).list_offsets(wanted, isolation_level=level, request_timeout=PROMPT))

    def told() -> dict[int, Bounds]:
        found = [{tp.partition: future.result(PATIENCE) for tp, future in one.items()} for one in asked]
        _refuse_missing(name, [info for one in found[:2] for info in one.values()])
        times = {p: info.timestamp for p, info in found[2].items()} if newest else dict.fromkeys(partitions, -1)
        return {p: Bounds(found[0][p].offset, found[1][p].offset, times[p]) for p in partitions}

    return told


def ends(settings: KafkaSettings, places: Sequence[tuple[str, int]], *, committed: bool = True) -> dict[tuple[str, int], int]:
    """Where partitions, of any topics, end. committed: only up to where the first open transaction begins."""
    kafka = library()
    level = kafka.IsolationLevel.READ_COMMITTED if committed else kafka.IsolationLevel.READ_UNCOMMITTED
    latest = kafka.admin.OffsetSpec.latest()

    def ask() -> dict[tuple[str, int], int]:
        wanted = {kafka.TopicPartition(*place): latest for place in places}
        asked = admin(settings).list_offsets(wanted, isolation_level=level, request_timeout=PROMPT)
        found = {(tp.topic, tp.partition): future.result(PATIENCE) for tp, future in asked.items()}
        _refuse_missing(places[0][0], list(found.values()))
        return {place: info.offset for place, info in found.items()}

    return insisted(settings, places[0][0], ask) if places else {}


def _refuse_missing(name: str, bounds: list[Any]) -> None:
    """An answer without a number is none: around a restart the client gives -1001 for an offset, and no error with it."""
    if any(info.offset < 0 for info in bounds):
        kafka = library()
        raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError.LEADER_NOT_AVAILABLE, f"the broker gave no offsets of {name}"))


def produce_one(settings: KafkaSettings, name: str, partition: int, value: bytes | None, key: bytes | None, **more: Any) -> int:
    """Writes one record, acknowledged by all replicas in sync, and returns its offset. more: timestamp, headers."""
    done: list[tuple[Any, int]] = []

    def answered(error: Any, message: Any) -> None:
        done.append((error, -1 if error else message.offset()))

    with translated(settings, name):
        producer = _PRODUCERS.get(settings.connection, lambda: new_producer(settings, _SINGLE))
        producer.produce(name, value, key, partition, on_delivery=answered, **more)
        if producer.flush(PATIENCE) or not done:
            raise away(settings, "whether the record is in the log is not known")
    error, offset = done[0]
    if error is not None:
        if error.fatal():
            _PRODUCERS.take(settings.connection)  # it is of no use any more
        raise as_error(settings, error, name)
    return offset


def answer(settings: KafkaSettings, future: "Future[T]", name: str = "") -> T:
    """What the broker answers."""
    with translated(settings, name):
        return future.result(PATIENCE)


def insisted(settings: KafkaSettings, name: str, ask: Callable[[], T]) -> T:
    """Asks again while the broker is starting, moves the partition, or cannot be reached: as long as the settings have patience."""
    deadline = time.monotonic() + settings.patience
    while True:
        try:
            with translated(settings, name):
                found = ask()
            _trouble_over(settings)
            return found
        except Passing:
            reached: Reached | None = _ADMINS.find(settings.connection)
            if reached is None or time.monotonic() > deadline:
                raise  # the broker never answered this process, and has had its time
            time.sleep(0.05)
            with suppress(library().KafkaException):  # after a restart it would go on by the leaders that it knew for minutes
                reached.client.list_topics(timeout=_LOOK)


def _trouble_over(settings: KafkaSettings) -> None:
    reached: Reached | None = _ADMINS.find(settings.connection)
    if reached and reached.contact.troubled:
        reached.client.poll(0)
        reached.contact.answered()


@contextmanager
def translated(settings: KafkaSettings, name: str = "") -> Iterator[None]:
    """Errors of the client become ours."""
    try:
        yield
    except PenstockError:
        raise
    except TimeoutError as error:
        raise away(settings, "it did not answer in time") from error
    except SystemError as error:  # the client stumbles over a callback while it tells of an error
        raise away(settings, str(error)) from error
    except Exception as error:
        if type(error).__module__.split(".")[0] not in ("cimpl", "confluent_kafka"):
            raise
        found = error.args[0] if error.args else error
        raise as_error(settings, found, name) from error


def away(settings: KafkaSettings, why: str) -> LogError:
    """The broker does not answer: what may pass by itself, with the cause as far as the client knows it."""
    reached: Reached | None = _ADMINS.find(settings.connection)
    if reached is None:
        return Contact(settings.servers, settings.get("security") or "plaintext").unreachable(why)
    reached.client.poll(0)
    return reached.contact.unreachable(why)


def as_error(settings: KafkaSettings, error: Any, name: str = "") -> PenstockError:
    """A KafkaError as an error of ours."""
    code = library().KafkaError
    number = error.code() if hasattr(error, "code") else None
    text = error.str() if hasattr(error, "str") else str(error)
    if number in (code.UNKNOWN_TOPIC_OR_PART, code._UNKNOWN_TOPIC, code.UNKNOWN_TOPIC_ID, code._UNKNOWN_PARTITION):
        return NotFound(f"Kafka has no topic {name}".rstrip(), text)
    if number == code.TOPIC_ALREADY_EXISTS:
        return AlreadyThere(f"there is a topic {name} already")
    if number in (code.OFFSET_OUT_OF_RANGE, code._AUTO_OFFSET_RESET):
        return OffsetGone(f"{name}: the offset asked for is not there any more", text, hint="read from earliest")
    if _passes(error):
        return away(settings, text)
    return LogError(f"Kafka at {','.join(settings.servers)} cannot be used", text)


def _passes(error: Any) -> bool:
    """Whether the same may go well later: the broker is away, starting, or moving the partition."""
    if not hasattr(error, "code"):
        return False
    code = library().KafkaError
    names = {getattr(code, passing, None) for passing in PASSING}
    return error.retriable() or error.code() in names or (error.code() == code._NOENT and "leader" in error.str().lower())


# What a broker that restarts lets its clients say, beside what the client itself calls retriable.
PASSING = (
    *("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_MSG_TIMED_OUT", "_RESOLVE", "_AUTHENTICATION", "_SSL"),
    *("_WAIT_COORD", "_WAIT_CACHE", "_DESTROY", "_PURGE_QUEUE", "_PURGE_INFLIGHT", "_OUTDATED", "_RETRY"),
    *("NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "LISTENER_NOT_FOUND"),
    *("BROKER_NOT_AVAILABLE", "REPLICA_NOT_AVAILABLE", "REQUEST_TIMED_OUT", "NETWORK_EXCEPTION", "NOT_CONTROLLER"),
    *("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "CONCURRENT_TRANSACTIONS"),
    *("NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "KAFKA_STORAGE_ERROR", "OFFSET_NOT_AVAILABLE"),
    # A transaction that was given up while the broker was away. A real successor shows in the log, by the sender's generation.
    *("_FENCED", "_FATAL", "_STATE", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_TXN_STATE", "UNKNOWN_PRODUCER_ID"),
    "_INCONSISTENT",  # some of its records were not taken
    *("INVALID_PRODUCER_ID_MAPPING", "OUT_OF_ORDER_SEQUENCE_NUMBER", "TRANSACTION_COORDINATOR_FENCED"),
    *("UNSTABLE_OFFSET_COMMIT", "ELIGIBLE_LEADERS_NOT_AVAILABLE", "STALE_BROKER_EPOCH", "THROTTLING_QUOTA_EXCEEDED"),
)
