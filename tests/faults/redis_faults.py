"""What goes wrong between a sink and a Redis, on purpose: bugs, and a connection that breaks."""

from collections.abc import Callable, Sequence

from penstock.sinks.port import Sink, SinkContext
from penstock.sinks.stores.port import Changes, Note, Refusal
from penstock.sinks.stores.redis.address import Address
from penstock.sinks.stores.redis.resp import Bytes, Connection, Reply, ReplyError, command
from penstock.sinks.stores.redis.store import RedisDefinition, RedisStore, RedisTransaction
from penstock.sinks.stores.sink import StoreSink

EXEC = command("EXEC")


def build_with(
    definition: RedisDefinition, connect: type[Connection] = Connection, begin: type[RedisTransaction] = RedisTransaction
) -> Callable[[SinkContext], Sink]:
    """How the sink is made with these parts."""
    return lambda context: StoreSink(context, RedisStore(definition, context.spec, connect, begin))


class AnswerLost(Connection):
    """The connection breaks behind each EXEC: the server does it, and nobody hears so."""

    def __init__(self, address: Address, password: str | None = None) -> None:
        self.sent: Bytes = b""
        super().__init__(address, password)

    def send(self, data: Bytes) -> None:
        super().send(data)
        self.sent = data

    def skip(self, count: int) -> ReplyError | None:
        found = super().skip(count)
        if self.sent == EXEC:
            raise ConnectionResetError("the connection is cut")
        return found


class NoWatch(Connection):
    """Nobody notices that the marker has changed."""

    def ask(self, *words: str | bytes | int) -> Reply:
        return b"OK" if words[0] == "WATCH" else super().ask(*words)


class InParts(RedisTransaction):
    def __init__(self, connection: Connection, store: RedisStore) -> None:
        super().__init__(connection, store)
        self.of = (connection, store)


class RowsAtOnce(InParts):
    """The rows have a MULTI of their own, before that of the marker."""

    def write(self, changes: Changes) -> Sequence[Refusal]:
        rows = RedisTransaction(*self.of)
        refusals = rows.write(changes)
        rows.commit()
        return refusals


class MarkerAtOnce(InParts):
    """The marker has a MULTI of its own, before that of the rows."""

    def write(self, changes: Changes) -> Sequence[Refusal]:
        self.changes = changes
        return ()

    def keep(self, note: Note) -> None:
        marker = RedisTransaction(*self.of)
        marker.keep(note)
        marker.commit()

    def commit(self) -> None:
        if hasattr(self, "changes"):
            super().write(self.changes)
        super().commit()
