"""The manifest of a directory of Parquet files: what counts, as one value; its versions are published exclusively and durably."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import orjson

from penstock.core.schema import Schema
from penstock.errors import AlreadyThere, NotFound, SinkError
from penstock.sinks.port import Marker
from penstock.storage.port import Storage

FORMAT = 1
MANIFESTS, DATA, DELETES = "_manifests", "data", "_deletes"  # directories
SEQUENCE = "__seq"  # int64, in files of deletes: rows of this key that were written before this sequence number are gone
KEPT = 10  # manifests that stay behind the newest one
_ATTEMPTS = 100


@dataclass(frozen=True)
class File:
    """A data file, or one of deletes. sequence: no row or delete in it is newer than that."""

    path: str
    rows: int
    bytes: int
    sequence: int
    partition: str = ""  # country=DE/day=2026-01-01


@dataclass(frozen=True)
class Replaced:
    """A file that counts no more; readers of older manifests may still be at it."""

    path: str
    at: float  # seconds since 1970


@dataclass(frozen=True)
class Manifest:
    """Everything that a reader or a driver has to know. A row of a data file counts unless its key is deleted at a later sequence
    number than the file's. sequence: counts the transactions of drivers; compaction leaves it as it is."""

    flow: str
    sink: str
    schema: Schema
    key: tuple[str, ...]
    partition_by: tuple[str, ...]
    version: int = 0
    sequence: int = 0
    marker: Marker | None = None
    data: tuple[File, ...] = ()
    deletes: tuple[File, ...] = ()
    replaced: tuple[Replaced, ...] = field(default=(), repr=False)

    @property
    def path(self) -> str:
        return f"{MANIFESTS}/{self.version:020d}.json"

    @property
    def paths(self) -> set[str]:
        """Every file that it names."""
        return {file.path for file in (*self.data, *self.deletes)} | {file.path for file in self.replaced}

    def json(self) -> bytes:
        values = asdict(self) | {"schema": self.schema.ddl()}
        return orjson.dumps({"format": FORMAT, **values})

    @classmethod
    def parsed(cls, text: bytes, path: str) -> "Manifest":
        try:
            values: dict[str, Any] = orjson.loads(text)
            if (found := values.pop("format")) != FORMAT:
                raise SinkError(f"{path} has format {found}, this Penstock reads {FORMAT}", hint="use the Penstock that wrote it")
            values["schema"] = Schema.of(values["schema"])
            values["marker"] = Marker(**values["marker"]) if values["marker"] else None
            values |= {name: tuple(values[name]) for name in ("key", "partition_by")}
            values |= {name: tuple(File(**each) for each in values[name]) for name in ("data", "deletes")}
            return cls(**{**values, "replaced": tuple(Replaced(**each) for each in values["replaced"])})
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise SinkError(f"{path} is no manifest of a Parquet sink", hint="restore it from a copy") from error


class Manifests:
    """The versions of a manifest in a storage. The greatest number is the one that counts."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def newest(self) -> Manifest | None:
        for _ in range(_ATTEMPTS):
            names = self._storage.list(MANIFESTS)
            if not names:
                return None
            try:
                return self.read(names[-1])
            except NotFound:  # swept since it was listed: there is a newer one
                continue
        raise SinkError(f"{MANIFESTS} changes faster than it can be read")

    def read(self, name: str) -> Manifest:
        path = f"{MANIFESTS}/{name}"
        return Manifest.parsed(self._storage.read(path).to_pybytes(), path)

    def all(self) -> list[Manifest]:
        """Those that are still there, the oldest first."""
        return [self.read(name) for name in self._storage.list(MANIFESTS)]

    def change(self, base: Manifest, changed: Callable[[Manifest], Manifest | None]) -> Manifest | None:
        """Publishes the change of the newest version, whichever that is by then. changed: None where it has become pointless."""
        for _ in range(_ATTEMPTS):
            wanted = changed(base)
            if wanted is None:
                return None
            following = replace(wanted, version=base.version + 1)
            try:
                self._storage.publish(following.path, following.json())
                return following
            except AlreadyThere:
                newest = self.newest()
                assert newest
                base = newest
        raise SinkError(f"{MANIFESTS} changes faster than it can be written")

    def sync(self, manifest: Manifest) -> None:
        """Makes a version durable whose publisher may have died, or failed, before it was."""
        appender = self._storage.append(manifest.path)
        try:
            appender.sync()
        finally:
            appender.close()

    def sweep(self, newest: Manifest) -> None:
        for name in self._storage.list(MANIFESTS):
            if int(name.partition(".")[0]) < newest.version - KEPT:
                self._storage.remove(f"{MANIFESTS}/{name}", durable=False)


def without(files: Sequence[File], gone: set[str]) -> tuple[File, ...]:
    return tuple(file for file in files if file.path not in gone)
