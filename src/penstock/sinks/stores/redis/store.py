"""Keys of a Redis or Valkey, kept in step: an epoch's rows and its marker in one MULTI, with WATCH on the marker."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Literal

import pyarrow as pa

from penstock.core.time import duration
from penstock.errors import BadInput, SinkError, SinkUnavailable
from penstock.sinks.port import Marker, SinkSpec
from penstock.sinks.stores.arguments import OnError, names, one_of
from penstock.sinks.stores.definition import StoreDefinition
from penstock.sinks.stores.places import Password, Place
from penstock.sinks.stores.port import Changes, Note, Refusal
from penstock.sinks.stores.redis.address import PORT, Address
from penstock.sinks.stores.redis.reading import alone, finite, stored_rows
from penstock.sinks.stores.redis.resp import Connection, ReplyError, command, pairs
from penstock.sinks.stores.redis.rows import LONGEST, Commands, Encoder, RowFormat, Value

if TYPE_CHECKING:
    from penstock.sinks.port import SinkContext
    from penstock.sinks.stores.port import Store

Mode = Literal["write", "invalidate"]
Connect = Callable[[Address, str | None], Connection]

MARKERS = "penstock:marker"
_LARGEST = 1 << 30  # bytes of a transaction that every server takes if nothing else was set
# What passes by itself, or once somebody has looked after the server.
_PASSING = {"LOADING", "BUSY", "OOM", "MISCONF", "READONLY", "MASTERDOWN", "NOREPLICAS", "TRYAGAIN", "CLUSTERDOWN", "EXECABORT"}
_HINTS = {
    "NOAUTH": 'name where the password is: password="env:NAME"',
    "WRONGPASS": "look at the password, and at the user in the URL",
    "NOPERM": "the user needs the commands of strings, hashes and transactions, for the prefix and for penstock:marker:*",
    "CROSSSLOT": "an epoch is one transaction, which a cluster cannot have: name a server that has all keys",
    "MOVED": "an epoch is one transaction, which a cluster cannot have: name a server that has all keys",
}


@dataclass(frozen=True)
class RedisDefinition(StoreDefinition):
    """`stream.sink(redis(…))`"""

    url: str = field(repr=False)
    prefix: str
    key: tuple[str, ...] | None = None
    value: Value = "hash"
    column: str | None = None
    mode: Mode = "write"
    ttl: timedelta | None = None
    password: str | None = None
    on_error: OnError = "dead"

    kind: ClassVar[str] = "redis"

    @property
    def target(self) -> str:
        return self.prefix.replace(":", ".")

    def emptied(self, flow: str, name: str) -> str:
        return f"in {Place.of(self.url, 'Redis', PORT)}: delete the keys {self.prefix}:* and {_marker(flow, name)}"

    def store(self, context: "SinkContext") -> "Store":
        return RedisStore(self, context.spec)

    @property
    def forgets(self) -> bool:
        return self.ttl is not None

    def kept(self, rows: pa.Table, spec: SinkSpec) -> pa.Table:
        if self.column is not None:
            return alone(rows, self.column, [name for name in spec.schema.names if name not in (self.column, *spec.key)])
        return finite(rows, spec.schema.names) if self.value == "json" else rows

    def details(self, key: tuple[str, ...]) -> str:
        what = "invalidated" if self.mode == "invalidate" else self.value
        return f"{super().details(key)}, {what}"


def redis(
    url: str,
    prefix: str,
    *,
    key: str | Iterable[str] | None = None,
    value: Value = "hash",
    column: str | None = None,
    mode: Mode = "write",
    ttl: str | timedelta | None = None,
    password: str | None = None,
    on_error: OnError = "dead",
) -> RedisDefinition:
    """Keys of a Redis or Valkey: `users.sink(redis("redis://cache:6379/0", "user"))` keeps `user:42` for the row with key 42.

    `key` names the columns that tell rows apart; left out, they are those of the step, and rows that have none get their position.
    `value`: what stands under a key: a hash with a field for each column, a JSON text, or the text of one `column` as a string.
    `mode="invalidate"` deletes the keys of rows that changed, instead of writing them: for caches that others fill. `ttl`: how long
    a key lives after its row was written, such as "1 hour". `on_error`: a row that cannot be written (a value longer than the
    server takes) becomes a dead letter, or stops the flow."""
    Address.of(url)
    Password(password, Place.of(url, "Redis", PORT))
    if not prefix or not isinstance(prefix, str) or prefix.startswith(MARKERS):
        raise BadInput(f"{prefix!r} cannot be the prefix of keys", hint="a word such as user: its keys are user:1, user:2, …")
    for what, given, allowed in (("value", value, Value), ("mode", mode, Mode), ("on_error", on_error, OnError)):
        one_of(what, given, allowed)
    if (column is None) != (value != "string"):
        raise BadInput('value="string" and column= go together', hint='value="string", column="name": the text of one column')
    lives = None if ttl is None else duration(ttl, "ttl")
    if lives is not None and lives < timedelta(milliseconds=1):
        raise BadInput(f"ttl={ttl!r} is too short", hint='write it like ttl="1 hour"')
    return RedisDefinition(url, prefix, names(key), value, column, mode, lives, password, on_error)


def _marker(flow: str, sink: str) -> str:
    return f"{MARKERS}:{flow}:{sink}"


class RedisStore:
    """The keys with one prefix. connect and begin: how a connection and a transaction are made."""

    def __init__(
        self,
        definition: RedisDefinition,
        spec: SinkSpec,
        connect: Connect = Connection,
        begin: "Callable[[Connection, RedisStore], RedisTransaction] | None" = None,
    ) -> None:
        self._definition, self._spec, self._connect, self._begin = definition, spec, connect, begin or RedisTransaction
        self._place = Place.of(definition.url, "Redis", PORT)
        self._password = Password(definition.password, self._place)
        self._connection: Connection | None = None
        self.marker = _marker(spec.flow, spec.name)
        self.longest, self.largest = LONGEST, _LARGEST  # bytes of a value, and of a transaction

    @property
    def called(self) -> str:
        return f"keys {self._definition.prefix}:* of {self._place}"

    @property
    def invalidates(self) -> bool:
        return self._definition.mode == "invalidate"

    def open(self) -> None:
        self.close()
        definition = self._definition
        if definition.column is not None and definition.column not in self._spec.schema.names:
            raise SinkError(
                f"{self.called} has no column {definition.column!r} to write",
                hint=f"there are: {', '.join(self._spec.schema.names)}",
            )
        with self._translated("be opened"):
            connection = self._connected()
            self.longest = _setting(connection, "proto-max-bulk-len", LONGEST)
            self.largest = _setting(connection, "client-query-buffer-limit", _LARGEST)

    @contextmanager
    def transaction(self) -> "Iterator[RedisTransaction]":
        with self._translated("take an epoch"):
            transaction = self._begin(self._connected(), self)
            try:
                yield transaction
                transaction.commit()
            except BaseException:
                self.close()  # with the connection goes what it has begun
                raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def spec(self) -> SinkSpec:
        return self._spec

    @property
    def format(self) -> RowFormat:
        d = self._definition
        return RowFormat(d.prefix, self._spec.key, tuple(self._spec.schema.names), d.value, d.column, d.ttl)

    def encoder(self) -> Encoder:
        return Encoder(self.format, self.longest)

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = self._connect(Address.of(self._definition.url), self._password.read())
        return self._connection

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SinkUnavailable(f"{self.called} cannot {doing}", self._password.hidden(str(error))) from error
        except ReplyError as error:
            kind = SinkUnavailable if error.code in _PASSING else SinkError
            raise kind(f"{self.called} cannot {doing}", self._password.hidden(str(error)), hint=_HINTS.get(error.code)) from error


class RedisTransaction:
    """WATCH on the marker, then MULTI with rows and marker. If somebody else has written the marker meanwhile, nothing happens."""

    one_moment = False

    def __init__(self, connection: Connection, store: RedisStore) -> None:
        self._connection, self._store = connection, store
        self._queued, self._sent = 0, 0  # commands since MULTI, itself included, and their bytes

    def note(self) -> Note | None:
        self._connection.ask("WATCH", self._store.marker)
        found = pairs(self._connection.ask("HGETALL", self._store.marker))
        if not found:
            return None
        try:
            marker = Marker(found["incarnation"].decode(), int(found["generation"]), int(found["epoch"]))
        except (KeyError, ValueError) as error:
            raise SinkError(
                f"the marker {self._store.marker} of {self._store.called} cannot be read", f"it has {found!r}"
            ) from error
        return Note(marker, b"".join(found.get(f"refused:{n}", b"") for n in range(len(found))))

    def write(self, changes: Changes) -> Sequence[Refusal]:
        encoder = self._store.encoder()
        for commands in encoder.deletes(changes.gone):
            self._queue(commands)
        for commands in (encoder.deletes if self._store.invalidates else encoder.puts)(changes.put):
            self._queue(commands)
        return encoder.refused

    def keep(self, note: Note) -> None:
        marker = note.marker
        fields: list[str | bytes | int] = [
            "incarnation",
            marker.incarnation,
            "generation",
            marker.generation,
            "epoch",
            marker.epoch,
        ]
        for n, start in enumerate(range(0, len(note.refused), self._store.longest)):  # a row may be there for being too long
            fields += [f"refused:{n}", note.refused[start : start + self._store.longest]]
        self._queue(Commands(command("UNLINK", self._store.marker) + command("HSET", self._store.marker, *fields), 2))

    def rows(self) -> Iterator[pa.Table]:
        """Not of one moment: keys are read one behind the other."""
        if self._store.invalidates:
            raise SinkError(
                f"{self._store.called} holds no rows: it is told which keys to forget", hint='mode="write" keeps rows there'
            )
        return stored_rows(self._connection, self._store.format, self._store.spec.schema)

    def commit(self) -> None:
        """Called when the block ends well. Where the answer to EXEC is lost, OSError: the marker says what became of it."""
        if not self._queued:
            self._connection.ask("UNWATCH")
            return
        self._connection.send(command("EXEC"))
        unqueued = self._connection.skip(self._queued)
        done = self._connection.length()
        undone = self._connection.skip(done) if isinstance(done, int) else done
        if error := unqueued or undone:
            raise error
        if done is None:
            raise SinkUnavailable(
                f"{self._store.called} was written by another driver at the same moment", "nothing of this epoch was written"
            )

    def _queue(self, commands: Commands) -> None:
        if not self._queued:
            self._connection.send(command("MULTI"))
            self._queued = 1
        self._sent += len(commands.data)
        if self._sent > self._store.largest:
            raise SinkError(
                f"an epoch has more bytes than {self._store.called} takes in one transaction, which are {self._store.largest}",
                hint="raise client-query-buffer-limit of the server; while a flow runs, smaller epochs help, too: --max-rows",
            )
        self._connection.send(commands.data)
        self._queued += commands.count


def _setting(connection: Connection, name: str, otherwise: int) -> int:
    """A limit of the server; where it may not be asked, the one that it has by default."""
    with suppress(ReplyError, ValueError):
        found = pairs(connection.ask("CONFIG", "GET", name)).get(name)
        return int(found) if found else otherwise
    return otherwise
