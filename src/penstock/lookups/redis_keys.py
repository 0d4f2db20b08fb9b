"""Keys of a Redis or Valkey, asked for many at once: what the sink `redis` writes, or anybody else under keys of that form."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa

from penstock.core.arrow import values_in
from penstock.core.schema import Schema
from penstock.errors import BadFlow, BadInput
from penstock.lookups.asking import Store, StoreQuestions, connections_of
from penstock.lookups.values import shaped
from penstock.plan import Answers, Asked, Lookup, Questions
from penstock.sinks.stores.arguments import one_of
from penstock.sinks.stores.places import Password, Place
from penstock.sinks.stores.redis.address import PORT, Address
from penstock.sinks.stores.redis.resp import Connection, Reply, ReplyError, command
from penstock.sinks.stores.redis.rows import RowFormat, Value


@dataclass(frozen=True)
class RedisRemote(Store):
    url: str = field(repr=False)
    prefix: str
    value: Value = "hash"
    password: str | None = None
    connections: int = 4

    key = ()  # keys have no columns there

    @property
    def _place(self) -> Place:
        return Place.of(self.url, "Redis", PORT)

    @property
    def called(self) -> str:
        return f"keys {self.prefix}:* of {self._place}"

    @property
    def secret(self) -> Password:
        return Password(self.password, self._place)

    @property
    def settings(self) -> Hashable:
        return "redis", self.url, self.password, self.connections

    def connect(self) -> Connection:
        return Connection(Address.of(self.url), self.secret.read())

    def alive(self, connection: Connection) -> None:
        connection.ask("PING")

    def open(self, lookup: Lookup) -> Questions:
        if self.value == "string" and len(lookup.answers.names) != 1:
            raise BadFlow(
                f"cannot ask {self.called}: a string is one column", hint='name one in schema=, or value="hash" or "json"'
            )
        return RedisQuestions(self, lookup)


def redis(url: str, prefix: str, *, value: Value = "hash", password: str | None = None, connections: int = 4) -> RedisRemote:
    """Keys of a Redis or Valkey to look rows up in: `orders.lookup(lookups.redis("redis://cache:6379/0", "user"), on="user_id", …)`
    asks for `user:42` where user_id is 42; of several columns for `user:42:de`, as the sink `redis` writes them.

    `value`: what stands under a key: a hash with a field for each column, a JSON text, or the text of one column as a string.
    `connections`: how many a process has to this server at most, for all of its lookups."""
    Address.of(url)
    Password(password, Place.of(url, "Redis", PORT))
    if not prefix or not isinstance(prefix, str):
        raise BadInput(f"{prefix!r} cannot be the prefix of keys", hint="a word such as user: its keys are user:1, user:2, …")
    one_of("value", value, Value)
    return RedisRemote(url, prefix, value, password, connections_of(connections))


class RedisQuestions(StoreQuestions):
    """All keys of a batch go in one piece, and the replies come in their order."""

    def __init__(self, remote: RedisRemote, lookup: Lookup) -> None:
        super().__init__(remote)
        self._value, self._answers, self._shaped = remote.value, lookup.answers, shaped(lookup.answers)
        self._on = Schema(pa.schema(list(zip(lookup.on, lookup.keys, strict=True)))) if lookup.keys else None
        self._format = RowFormat(remote.prefix, lookup.on, ())

    def __call__(self, keys: Asked) -> Answers:
        rows = pa.Table.from_pylist(keys, schema=self._on.arrow if self._on else None)
        names = values_in(self._format.keys_of(rows), bytes)
        with self.connection() as connection:
            connection.send(b"".join(self._command(name) for name in names))
            replies = [self._reply(connection) for _ in names]
        return [self._answer(reply) for reply in replies]

    def _command(self, name: bytes) -> bytes:
        if self._value != "hash":
            return command("GET", name)
        return command("EXISTS", name) + command("HMGET", name, *self._answers.names)

    def _reply(self, connection: Connection) -> Reply:
        """Of one key. What the server says of this key alone is kept for it; all else is raised."""
        there = connection.reply() if self._value == "hash" else 1
        found = connection.reply()
        for reply in (there, found):
            if isinstance(reply, ReplyError) and reply.code != "WRONGTYPE":
                raise reply
        return found if there else None

    def _answer(self, reply: Reply) -> Any:
        if reply is None or isinstance(reply, ReplyError):
            return reply
        if self._value == "hash":
            return self._shaped(dict(zip(self._answers.names, reply, strict=True)))
        if self._value == "string":
            return self._shaped({self._answers.names[0]: reply})
        return self._object(reply)

    def _object(self, reply: bytes) -> Any:
        try:
            found = orjson.loads(reply)
        except orjson.JSONDecodeError as error:
            return error
        if not isinstance(found, dict):
            return found
        return self._shaped({name: found.get(name) for name in self._answers.names})
