"""The topics of a Kafka broker as a log."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.core.names import check_name
from penstock.core.schema import Schema
from penstock.core.time import Clock, SystemClock, micros
from penstock.errors import AlreadyThere, BadInput, BadName, NotFound
from penstock.log.altering import differs
from penstock.log.errors import already_there, evolves, no_topic
from penstock.log.kafka.catalog import INTERNAL, Entry, catalog, wait_for
from penstock.log.kafka.client import (
    PATIENCE,
    PROMPT,
    Described,
    admin,
    answer,
    describe,
    insisted,
    library,
    topic_names,
    translated,
)
from penstock.log.kafka.settings import KafkaSettings
from penstock.log.kafka.topic import KafkaTopic
from penstock.log.kafka.values.codecs import check_codec
from penstock.log.port import TopicSpec
from penstock.log.settings import check_spec

if TYPE_CHECKING:
    from penstock.log.groups.port import Groups
    from penstock.log.watching import Watch

# Of a topic that is not compacted Kafka never uses this option: it holds the number under which its settings were announced.
_NUMBER = "delete.retention.ms"
_DAY = 86_400_000
_UNMADE = "0" * 32  # stands for the id that Kafka will give


class KafkaOpener:
    """kafka://host:9092: see `log.open.LogOpener`."""

    def check(self, url: str) -> None:
        KafkaSettings.of(url)

    def open(self, url: str, patience: float | None) -> "KafkaLog":
        settings = KafkaSettings.of(url)
        return KafkaLog(settings if patience is None else replace(settings, patience=patience))


class KafkaLog:
    """The topics of a broker, all of them or those of a prefix. Holds nothing open itself; picklable, without secrets."""

    def __init__(self, settings: KafkaSettings, clock: Clock | None = None) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()

    def __repr__(self) -> str:
        return f"KafkaLog({self.settings})"

    def groups(self) -> "Groups":
        from penstock.log.kafka.groups.keeper import KafkaGroups

        return KafkaGroups(self.settings, self.clock)

    def watch(self, topics: Sequence[str]) -> "Watch":
        from penstock.log.kafka.watching import KafkaWatch

        return KafkaWatch(self.settings, topics)

    def create(self, spec: TopicSpec) -> KafkaTopic:
        self._check(spec)
        twin = [name for name in self.topics() if name.lower() == spec.name.lower()]
        if twin:
            raise already_there(spec.name, twin[0])
        on_broker, number = self._on_broker(spec.name), str(_DAY + secrets.randbits(30))
        catalog(self.settings).announce(on_broker, number, _entry(spec, _UNMADE))
        try:
            self._make(spec, _config(spec) | {_NUMBER: number})
        except AlreadyThere:
            catalog(self.settings).announce(on_broker, number, None)
            raise
        topic = self._adopted(spec, wait_for(self.settings, on_broker))
        catalog(self.settings).announce(on_broker, number, None)
        return topic

    def adopt(self, spec: TopicSpec) -> KafkaTopic:
        """Gives settings (schema, time, key, codec) to a topic that others made and write. Their records are left as they are."""
        self._check(spec)
        found = self._described(spec.name)
        known = catalog(self.settings).get(self._on_broker(spec.name))
        if known and known.id == found.id:
            raise AlreadyThere(f"topic {spec.name} has settings already", hint="penstock topic describe shows them")
        return self._adopted(replace(spec, partitions=found.partitions), found.id)

    def topic(self, name: str) -> KafkaTopic:
        check_name(name)
        on_broker, settings = self._on_broker(name), catalog(self.settings)
        found, known = (None, None) if on_broker.startswith(INTERNAL) else settings.topic(on_broker)
        found = found or self._described(name)
        if known is None or known.id != found.id:
            position = settings.position()
            known = self._known(on_broker, found.id)
        if known is None:  # made by others: bytes
            known = Entry(TopicSpec(name), found.id)
            settings.remember(on_broker, known, position)
        return KafkaTopic(self.settings, self.clock, replace(known, spec=replace(known.spec, partitions=found.partitions)))

    def _described(self, name: str) -> Described:
        """The topic as the broker has it. One that was made just now may be listed before it can be described: it is waited for."""
        on_broker, deadline = self._on_broker(name), time.monotonic() + PATIENCE
        while True:
            found = None if on_broker.startswith(INTERNAL) else describe(self.settings, on_broker)
            if found is not None:
                return found
            listed = self.topics()
            if name not in listed or time.monotonic() > deadline:
                raise no_topic(name, listed)
            time.sleep(0.02)

    def topics(self) -> list[str]:
        prefix = self.settings.prefix
        found = [name for name in topic_names(self.settings) if name.startswith(prefix) and not name.startswith(INTERNAL)]
        return sorted(name.removeprefix(prefix) for name in found)

    def delete(self, name: str) -> None:
        self.topic(name)
        on_broker = self._on_broker(name)
        with translated(self.settings, name):
            gone = admin(self.settings).delete_topics([on_broker], request_timeout=PATIENCE)
        answer(self.settings, gone[on_broker], name)
        self._unlisted(name)
        if catalog(self.settings).get(on_broker):
            catalog(self.settings).put(on_broker, None)

    def _unlisted(self, name: str) -> None:
        """Waits until a topic that was deleted is listed no more: one of its name can be made then."""
        deadline = time.monotonic() + PATIENCE
        while name in self.topics() and time.monotonic() < deadline:
            time.sleep(0.02)

    def evolve(self, name: str, schema: Schema) -> KafkaTopic:
        topic = self.topic(name)
        if evolves(name, topic.spec.schema, schema):
            known = catalog(self.settings).get(self._on_broker(name))
            if known is None:
                raise NotFound(f"topic {name} has no settings")
            catalog(self.settings).put(self._on_broker(name), known.grown(schema))
        return self.topic(name)

    def alter(self, spec: TopicSpec) -> KafkaTopic:
        """Gives a topic these settings: see `altering.Alterable`. Retention is Kafka's own work."""
        check_kafka(spec)
        topic = self.topic(spec.name)
        if not differs(topic.spec, spec):
            return topic
        on_broker = self._on_broker(spec.name)
        if spec.partitions > topic.spec.partitions:
            self._add_partitions(on_broker, spec.partitions)
        self._configure(on_broker, spec)
        known = catalog(self.settings).get(on_broker)
        schemas = known.schemas if known and known.id == topic.id else ()
        catalog(self.settings).put(on_broker, Entry(spec, topic.id, schemas))
        return self.topic(spec.name)

    def _make(self, spec: TopicSpec, config: dict[str, str]) -> None:
        on_broker = self._on_broker(spec.name)
        new = library().admin.NewTopic(on_broker, spec.partitions, self.settings.replication, config=config)
        with translated(self.settings, spec.name):
            made = admin(self.settings).create_topics([new], request_timeout=PATIENCE)
        answer(self.settings, made[on_broker], spec.name)

    def _known(self, on_broker: str, id: str) -> Entry | None:
        """The settings of a topic; None: others made it. Its maker takes the announcement back when the settings are there, and may
        do so between our two looks: then a second pair of looks finds them."""
        for _ in range(2):
            known = catalog(self.settings).get(on_broker)
            if known and known.id == id:
                return known
            finished = self._finished(on_broker, id)
            if finished:
                return finished
        return None

    def _finished(self, on_broker: str, id: str) -> Entry | None:
        """The settings of a topic whose maker was killed, or has not come so far yet: written down for it. None: others made it."""
        announced = catalog(self.settings).announced(on_broker)
        number = self._number(on_broker) if announced else ""
        if number not in announced:
            return None
        entry = replace(announced[number], id=id)
        catalog(self.settings).put(on_broker, entry)
        catalog(self.settings).announce(on_broker, number, None)
        return entry

    def _number(self, on_broker: str) -> str:
        kafka = library().admin
        wanted = kafka.ConfigResource(kafka.ConfigResource.Type.TOPIC, on_broker)
        found = insisted(
            self.settings,
            on_broker,
            lambda: next(iter(admin(self.settings).describe_configs([wanted], request_timeout=PROMPT).values())).result(PATIENCE),
        )
        return str(found[_NUMBER].value)

    def _add_partitions(self, on_broker: str, partitions: int) -> None:
        new = library().admin.NewPartitions(on_broker, partitions)
        with translated(self.settings, on_broker):
            made = admin(self.settings).create_partitions([new], request_timeout=PATIENCE)
        answer(self.settings, made[on_broker], on_broker)

    def _configure(self, on_broker: str, spec: TopicSpec) -> None:
        kafka = library().admin
        entries = [
            kafka.ConfigEntry(name, value, incremental_operation=kafka.AlterConfigOpType.SET)
            for name, value in _config(spec).items()
        ]
        wanted = kafka.ConfigResource(kafka.ConfigResource.Type.TOPIC, on_broker, incremental_configs=entries)
        with translated(self.settings, on_broker):
            made = admin(self.settings).incremental_alter_configs([wanted], request_timeout=PATIENCE)
        for each in made.values():
            answer(self.settings, each, on_broker)

    def _adopted(self, spec: TopicSpec, id: str) -> KafkaTopic:
        entry = _entry(spec, id)
        catalog(self.settings).put(self._on_broker(spec.name), entry)
        return KafkaTopic(self.settings, self.clock, entry)

    def _check(self, spec: TopicSpec) -> None:
        check_name(spec.name)
        check_spec(spec)
        check_codec(spec, self.settings)
        check_kafka(spec)
        if self._on_broker(spec.name).startswith(INTERNAL):
            raise BadName(
                f"{spec.name} cannot name a topic: names with {' or '.join(INTERNAL)} are reserved by the broker and Penstock"
            )

    def _on_broker(self, name: str) -> str:
        return self.settings.prefix + name


def _entry(spec: TopicSpec, id: str) -> Entry:
    return Entry(spec, id, (spec.schema,) if spec.schema else ())


def _config(spec: TopicSpec) -> dict[str, str]:
    """Kafka's own settings of a topic: nothing is removed unless that is asked for; records may be as large as the topic says."""
    return {
        "retention.ms": "-1" if spec.retain is None else str(max(1, micros(spec.retain) // 1000)),
        "retention.bytes": "-1" if spec.retain_bytes is None else str(spec.retain_bytes),
        "message.timestamp.type": "CreateTime",
        "max.message.bytes": str((4 << 20) + 4 * spec.max_record),
    }


def check_kafka(spec: TopicSpec) -> None:
    """Refuses settings that a topic of Kafka cannot have."""
    if spec.compact:
        raise BadInput(
            f"topic {spec.name} cannot be compacted on Kafka",
            "a compacted topic of Kafka takes no records without a key, and marks are such records",
            hint="keep all records, or retain them by age; a table read from the topic holds the latest row of every key",
        )
