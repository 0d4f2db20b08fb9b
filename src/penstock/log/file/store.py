"""The files of a topic that are not its records: settings, schema versions, and where its partitions are."""

import secrets
from contextlib import suppress
from dataclasses import dataclass, replace

from penstock.core.schema import Schema
from penstock.errors import AlreadyThere, NotFound
from penstock.log.altering import differs
from penstock.log.errors import evolves
from penstock.log.file.place import Place
from penstock.log.port import TopicSpec
from penstock.log.settings import decode_alteration, decode_schema, decode_settings, encode_alteration, encode_schema
from penstock.storage.local import LocalStorage, volatile_twin
from penstock.storage.port import Storage

TOPICS = "topics"
SETTINGS = "topic.json"


def directory_of(name: str) -> str:
    """Names that differ in case alone share a directory, so that one of two twins is refused on every disk."""
    return f"{TOPICS}/{name.lower()}"


def settings_of(name: str) -> str:
    return f"{directory_of(name)}/{SETTINGS}"


@dataclass(frozen=True)
class TopicStore:
    """One life of a topic: delete and create makes another id, and so another directory."""

    storage: Storage
    spec: TopicSpec  # as it was made: later columns are in `schemas`, what was altered in `settings`
    made_id: str

    @property
    def directory(self) -> str:
        return f"{directory_of(self.spec.name)}/{self.made_id}"

    @property
    def id(self) -> str:
        """Of a topic in memory it changes when the memory was lost, since its offsets begin anew."""
        twin = self.twin()
        if twin is None:
            return self.made_id
        path = f"{self.directory}/life"
        with suppress(AlreadyThere):
            twin.publish(path, secrets.token_hex(8).encode())
        return f"{self.made_id}-{bytes(twin.read(path)).decode()}"

    def twin(self) -> LocalStorage | None:
        """The storage in memory, where the topic lives there."""
        return volatile_twin(self.storage) if self.spec.durability == "memory" else None

    def check_alive(self) -> None:
        """NotFound once the topic was deleted, or deleted and made again."""
        name = self.spec.name
        try:
            _, id = decode_settings(bytes(self.storage.read(settings_of(name))), settings_of(name))
        except NotFound:
            id = ""
        if id != self.made_id:
            raise NotFound(f"topic {name} was deleted" + (" and made again" if id else ""), hint="open the topic again")

    def place(self, partition: int) -> Place:
        storage, spec = self.twin() or self.storage, self.spec
        return Place(storage, f"{self.directory}/{partition}", spec.name, self.made_id, partition, spec.durability)

    def durability_in_words(self) -> str:
        if self.spec.durability == "fsync":
            return "fsync: an acknowledged record survives a power loss"
        if self.spec.durability == "os":
            return "os: an acknowledged record survives the end of its process, not a power loss"
        twin = self.twin()
        where = f"kept in {twin.root}" if twin else "this machine has no memory directory, so it is kept as with os"
        return f"memory: {where}"

    def version(self) -> tuple[int, int]:
        """How many schemas there are, and how often the settings were altered. Neither ever gets less."""
        names = self.storage.list(self.directory)
        return 1 + sum(name.startswith("schema-") for name in names), sum(name.startswith("settings-") for name in names)

    def schemas(self) -> list[Schema | None]:
        """All versions, the oldest first."""
        names = [n for n in self.storage.list(self.directory) if n.startswith("schema-")]
        later = [f"{self.directory}/schema-{i + 1}.json" for i in range(len(names))]
        return [self.spec.schema, *(decode_schema(bytes(self.storage.read(path)), path) for path in later)]

    def settings(self) -> tuple[int, TopicSpec]:
        """The newest settings, and how often they were altered. The schema is that of the beginning."""
        count = sum(name.startswith("settings-") for name in self.storage.list(self.directory))
        if not count:
            return 0, self.spec
        path = self._alteration(count)
        return count, decode_alteration(bytes(self.storage.read(path)), path, self.spec)

    def altered_since(self, count: int) -> bool:
        """Whether there are newer settings than these."""
        try:
            self.storage.read(self._alteration(count + 1))
        except NotFound:
            return False
        return True

    def alter(self, spec: TopicSpec) -> None:
        """Publishes new settings; one of several who try at once wins, the others look again."""
        while True:
            count, known = self.settings()
            if not differs(replace(known, schema=self.schemas()[-1]), spec):
                return
            try:
                self.storage.publish(self._alteration(count + 1), encode_alteration(spec))
                return
            except AlreadyThere:
                continue

    def _alteration(self, number: int) -> str:
        return f"{self.directory}/settings-{number}.json"

    def evolve(self, schema: Schema) -> None:
        """Adds a version; one of several who try at once wins, the others look again."""
        while True:
            versions = self.schemas()
            if not evolves(self.spec.name, versions[-1], schema):
                return
            try:
                self.storage.publish(f"{self.directory}/schema-{len(versions)}.json", encode_schema(schema))
                return
            except AlreadyThere:
                continue
