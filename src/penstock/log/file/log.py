"""The embedded log: topics in a directory, no server. Format: docs/adr/0005-log-format.md."""

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.names import check_name
from penstock.core.schema import Schema
from penstock.core.time import Clock, SystemClock
from penstock.errors import AlreadyThere, BadInput, NotFound
from penstock.log.cleaning.partition import Cleaned
from penstock.log.errors import already_there, no_topic, refuse_codec
from penstock.log.file.acks import Ack, State, encode_ack, open_acks
from penstock.log.file.place import named
from penstock.log.file.store import SETTINGS, TOPICS, TopicStore, directory_of, settings_of
from penstock.log.file.topic import FileTopic, opened
from penstock.log.holding import Holds, nobody
from penstock.log.port import TopicSpec
from penstock.log.settings import check_spec, decode_settings, encode_settings
from penstock.storage.local import LocalStorage
from penstock.storage.port import Storage

if TYPE_CHECKING:
    from penstock.log.groups.port import Groups
    from penstock.log.watching import Watch

SEGMENT_SIZE = 64 << 20
GROUPS = "groups.db"


class FileLog:
    """The topics below a storage. Holds nothing open itself; picklable."""

    def __init__(self, storage: Storage, clock: Clock | None = None, segment_size: int = SEGMENT_SIZE) -> None:
        self.storage = storage
        self.clock = clock or SystemClock()
        self.segment_size = segment_size

    def create(self, spec: TopicSpec) -> FileTopic:
        check_name(spec.name)
        check_spec(spec)
        refuse_codec(spec)
        id = secrets.token_hex(16)
        try:
            self.storage.publish(settings_of(spec.name), encode_settings(spec, id))
        except AlreadyThere:
            raise already_there(spec.name, self._store(spec.name, any_case=True).spec.name) from None
        self._sweep(spec.name, keep=id)
        return self.topic(spec.name)

    def topic(self, name: str) -> FileTopic:
        return opened(self._store(name), self.clock, self.segment_size)

    def topics(self) -> list[str]:
        return sorted(store.spec.name for store in self._stores())

    def delete(self, name: str) -> None:
        store = self._store(name)
        self.storage.remove(settings_of(name))
        for partition in range(store.settings()[1].partitions):
            place = store.place(partition)
            with place.storage.lock(place.cleaning), place.storage.lock(place.lock):
                for segment in named(place.storage.list(place.directory), "log")[-1:]:  # writers that have it open find this note
                    acks = open_acks(place, segment)
                    acks.write(encode_ack(Ack(State.DELETED, 0, 0)))
                    acks.close()
                place.storage.remove(place.directory)
        (store.twin() or self.storage).remove(store.directory)
        self.storage.remove(store.directory)

    def groups(self) -> "Groups":
        from penstock.log.groups.sqlite import SqliteGroups

        if not isinstance(self.storage, LocalStorage):
            raise BadInput(
                "the log has no place for groups: it lies in no directory", hint="read it with penstock.log.consumer.read"
            )
        return SqliteGroups(Path(self.storage.root) / GROUPS, self.clock)

    def watch(self, topics: Sequence[str]) -> "Watch":
        from penstock.log.file.watching import file_watch

        return file_watch(self, topics)

    def clean(self, name: str, holds: Holds = nobody, *, eager: bool = True) -> list[Cleaned]:
        """Lets go what retention says, compacts, and rewrites closed segments: see `cleaning.topics.Cleanable`."""
        return self.topic(name).clean(holds(name), eager=eager)

    def alter(self, spec: TopicSpec) -> FileTopic:
        """Gives a topic these settings: see `altering.Alterable`."""
        self._store(spec.name).alter(spec)
        return self.topic(spec.name)

    def evolve(self, name: str, schema: Schema) -> FileTopic:
        self._store(name).evolve(schema)
        return self.topic(name)

    def _store(self, name: str, any_case: bool = False) -> TopicStore:
        check_name(name)
        try:
            spec, id = decode_settings(bytes(self.storage.read(settings_of(name))), settings_of(name))
        except NotFound:
            raise no_topic(name, self.topics()) from None
        if spec.name != name and not any_case:
            raise no_topic(name, self.topics())
        return TopicStore(self.storage, spec, id)

    def _stores(self) -> list[TopicStore]:
        found = []
        for directory in self.storage.list(TOPICS):
            path = f"{TOPICS}/{directory}/{SETTINGS}"
            try:
                found.append(TopicStore(self.storage, *decode_settings(bytes(self.storage.read(path)), path)))
            except NotFound:
                continue  # deleted, or its first file is being written
        return found

    def _sweep(self, name: str, keep: str) -> None:
        """Takes away what an interrupted delete left."""
        for entry in self.storage.list(directory_of(name)):
            if entry not in (SETTINGS, keep):
                self.storage.remove(f"{directory_of(name)}/{entry}")
