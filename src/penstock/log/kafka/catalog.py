"""The settings of topics that Kafka itself cannot hold, in a compacted topic: one record a topic, the last one counts.

A topic is made in three steps: its settings are announced under a number of their own, Kafka makes the topic with that number among
its options, and the settings are written down with the topic's id. A process that finds a topic between the last two finishes it.
"""

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace

import orjson

from penstock.core.schema import Schema
from penstock.errors import AlreadyThere, Damaged, PenstockError
from penstock.log.kafka.client import (
    PATIENCE,
    Described,
    Looked,
    PerProcess,
    admin,
    answer,
    away,
    describe,
    library,
    look,
    produce_one,
    translated,
)
from penstock.log.kafka.read.ranges import read_range
from penstock.log.kafka.settings import KafkaSettings
from penstock.log.port import TopicSpec
from penstock.log.settings import decode_settings, encode_settings

NAME = "_penstock_topics"
INTERNAL = ("_penstock_", "__")
_COMPACTED = {
    "cleanup.policy": "compact",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "segment.bytes": str(8 << 20),
    "min.cleanable.dirty.ratio": "0.1",
}


@dataclass(frozen=True)
class Entry:
    """What is known of a topic: its settings, Kafka's id of it, and all versions of its schema."""

    spec: TopicSpec
    id: str
    schemas: tuple[Schema, ...] = ()

    def grown(self, schema: Schema) -> "Entry":
        return Entry(replace(self.spec, schema=schema), self.id, (*self.schemas, schema))


class Catalog:
    """All settings of a broker, as far as they were read. One per process."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._guard = threading.RLock()
        self._forget("")

    def topic(self, name: str) -> tuple[Described | None, Entry | None]:
        """A topic, by its name on the broker, and its settings. Both are asked for at once: settings of a topic that was made this
        moment may be missing, and they may be those of an older topic of its name."""
        with self._guard:
            found = look(self._settings, {name: (), NAME: (0,)})
            self._learn(found[NAME])
            topic, (position, others) = found[name].topic, self._others.get(name, (-1, None))
            still = others and position == self._next and topic and others.id == topic.id
            return topic, others if still else self._found.get(name)

    def position(self) -> int:
        """How far the settings were read."""
        return self._next

    def remember(self, name: str, entry: Entry, position: int) -> None:
        """Notes that nobody has written settings for a topic: somebody has looked since this position. It holds for `topic` until
        anything is written."""
        with self._guard:
            self._others[name] = position, entry

    def get(self, name: str) -> Entry | None:
        """The newest settings of a topic, by its name on the broker."""
        with self._guard:
            self._refresh()
            return self._found.get(name)

    def put(self, name: str, entry: Entry | None) -> None:
        """Writes settings down, or (None) that there are none any more; returns once the broker has them."""
        internal_topic(self._settings, NAME, 1)
        produce_one(self._settings, NAME, 0, None if entry is None else _encoded(entry), name.encode())

    def announce(self, name: str, number: str, entry: Entry | None) -> None:
        """Writes down what a topic will be that is about to be made with this number; None: it is made, or will never be."""
        self.put(f"{name}/{number}", entry)

    def announced(self, name: str) -> dict[str, Entry]:
        """What was announced of topics of this name and not yet finished, by number."""
        with self._guard:
            self._refresh()
            return dict(self._announced.get(name, {}))

    def _forget(self, id: str) -> None:
        self._id, self._next = id, 0
        self._found: dict[str, Entry] = {}
        self._announced: dict[str, dict[str, Entry]] = {}
        self._others: dict[str, tuple[int, Entry]] = {}  # topics without settings, and up to where that was looked for

    def _refresh(self) -> None:
        self._learn(look(self._settings, {NAME: (0,)})[NAME])

    def _learn(self, now: Looked) -> None:
        """Reads what was written since the last time."""
        found = now.topic
        if found is None:
            self._forget("")
            return
        if found.id != self._id:
            self._forget(found.id)
        first, end, _ = now.bounds[0]
        start = max(first, self._next)
        for piece in read_range(self._settings, NAME, found.id, 0, start, end) if start < end else ():
            for key, value in zip(piece.keys.to_pylist(), piece.values.to_pylist(), strict=True):
                self._take((key or b"").decode(errors="replace"), value)
        self._next = end

    def _take(self, key: str, value: bytes | None) -> None:
        name, _, number = key.partition("/")  # no name of a topic holds a slash
        known, key = (self._announced.setdefault(name, {}), number) if number else (self._found, name)
        if value is None:
            known.pop(key, None)
        else:
            known[key] = _decoded(value, name)


_CATALOGS = PerProcess()


def catalog(settings: KafkaSettings) -> Catalog:
    return _CATALOGS.get(settings, lambda: Catalog(settings))


def internal_topic(settings: KafkaSettings, name: str, partitions: int) -> None:
    """Makes a topic of our own, if it is not there."""
    if describe(settings, name) is not None:
        return
    new = library().admin.NewTopic(name, partitions, settings.replication, config=_COMPACTED)
    with translated(settings, name):
        made = admin(settings).create_topics([new], request_timeout=PATIENCE)[name]
    with suppress(AlreadyThere):  # by another process, at the same moment
        answer(settings, made, name)
    wait_for(settings, name)


def wait_for(settings: KafkaSettings, name: str) -> str:
    """The id of a topic that was just made, once the broker knows it everywhere."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = describe(settings, name)
        if found is not None:
            return found.id
        time.sleep(0.02)
    raise away(settings, f"the topic {name} was made, and is not there")


def _encoded(entry: Entry) -> bytes:
    fields = orjson.loads(encode_settings(entry.spec, entry.id))
    return orjson.dumps(fields | {"codec": entry.spec.codec, "schemas": [schema.ddl() for schema in entry.schemas]})


def _decoded(value: bytes, name: str) -> Entry:
    spec, id = decode_settings(value, f"of topic {name} in {NAME}")
    try:
        fields = orjson.loads(value)
        return Entry(replace(spec, codec=fields["codec"]), id, tuple(map(Schema.of, fields["schemas"])))
    except (ValueError, KeyError, TypeError, PenstockError) as error:
        raise Damaged(f"the settings of topic {name} in {NAME} cannot be read", str(error)) from error
