"""PostgreSQL followed through its write-ahead log: an engine of the port. First the copies of its tables, merged with the stream by
visibility, then the stream alone."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.capture import port
from penstock.capture.definition import Secret
from penstock.capture.port import Json, Places, Status, Table
from penstock.capture.postgres.connecting import connect
from penstock.capture.postgres.copy.copies import Copies
from penstock.capture.postgres.copy.copying import CHUNK
from penstock.capture.postgres.copy.current import CurrentValues
from penstock.capture.postgres.copy.published import published_tables
from penstock.capture.postgres.copy.spool import Spool
from penstock.capture.postgres.decode.changes import Batch
from penstock.capture.postgres.keys import Keys
from penstock.capture.postgres.position import WalPosition
from penstock.capture.postgres.resuming import check_server, check_slot
from penstock.capture.postgres.stream.converting import Shape
from penstock.capture.postgres.stream.replication import Replication
from penstock.capture.postgres.stream.streaming import BOUND, Cut, Streaming, Upto
from penstock.capture.postgres.values.types import Types
from penstock.capture.postgres.watching import Watch
from penstock.errors import SlotInUse
from penstock.storage.port import Storage

if TYPE_CHECKING:
    from penstock.capture.postgres.connecting import Connection

RETRY = 0.1  # seconds between two looks at a slot that is still in use
ASKING = 0.02  # seconds between two questions how far the server has come, while something waits for that


@dataclass(frozen=True)
class Source:
    """What is followed."""

    url: str
    slot: str
    publication: str
    secret: Secret = field(default_factory=Secret)  # read for each connection, so that it may be renewed


@dataclass(frozen=True)
class Settings:
    """How it is followed. Times are in seconds."""

    max_kept_bytes: int = 1 << 30  # of the server's log for us, before there is a warning
    batch_bytes: int = BOUND  # of one transaction that are held before a part of it is given out
    chunk_rows: int = CHUNK  # of a table that are copied at once, at most
    patience: float = 30.0  # after a kill the server lets go of the slot once it notices, at the latest after wal_sender_timeout
    looking: float = 2.0  # between two looks at the slot and the publication
    idle: float = 5.0  # between two confirmations while nothing is changed
    heartbeat: float = 10.0  # between two heartbeats while nothing is changed


class PostgresEngine:
    """Follows the tables of a publication. storage: a place of its own, where a chunk lies until it is written."""

    connector = "postgresql"

    def __init__(self, source: Source, storage: Storage, settings: Settings | None = None) -> None:
        self._source, self._settings, self._spool = source, settings or Settings(), Spool(storage)
        self._connection: Connection | None = None
        self._stream: Replication | None = None
        self._asked = self._looked = self._confirmed = self._beaten = 0.0  # when, by time.monotonic()
        self._given = 0  # everything that was committed before this position has been given out
        self._spooled = True
        self._gone: list[Table] = []

    @property
    def database(self) -> str:
        assert self._connection, "the engine has not been started"
        return self._connection.info.dbname

    def start(self, position: Json | None, unfinished: Json | None) -> None:
        self.close()
        source, at = self._source, WalPosition.of(position) if position else None
        connection = self._connection = connect(source.url, f"penstock {source.slot}", password=source.secret.read())
        tables = published_tables(connection, source.publication)
        begin = check_slot(connection, source.slot, at, self._spool.confirmed())
        self._watch = Watch(connection, source.slot, self._settings.max_kept_bytes)
        stream = self._stream = self._opened(at)
        if at:
            check_server(at, stream.system)
        at = at or WalPosition(stream.system.identifier, stream.system.timeline, 0, begin)
        types, keys = Types(connection), Keys(connection, at.copied)
        self._streaming = Streaming(at, types, keys.of_relation, self._look_up, self._settings.batch_bytes)
        self._copies = Copies(connection, source.publication, types, keys, at, self._settings.chunk_rows)
        self._given, self._unfinished, self._behind = at.end, unfinished, list[bytes]()
        self._published(tables)

    def next(self, wait: float) -> port.Batch | None:
        assert self._stream, "the engine has not been started"
        if self._unfinished:
            again = self._again(self._unfinished)
            self._unfinished = None
            return again
        self._look()
        copied = self._copied(self._given)  # before the stream, which may never fall silent
        if copied:
            return copied
        self._copies.read()
        pressing = self._copies.left or self._given < self._watch.begin
        if pressing:
            self._ask()
        if not self._streaming.ready:
            messages, self._behind = self._behind or self._stream.next(min(wait, ASKING) if pressing else wait), []
            self._streaming.add(messages)
        passed = self._stream.passed
        batch = self._next(passed)
        if not self._streaming.held:
            self._given = passed
        if batch is None:
            self._idle()
        else:
            self._beaten = time.monotonic()
        return batch

    def written(self, position: Json) -> None:
        if self._spooled:
            self._spool.clear()
            self._spooled = False
        if self._stream:
            self._stream.confirm(WalPosition.of(position).end)

    def status(self) -> Status:
        """As it was seen last; asks nobody, so that it can be asked while the server is away."""
        if self._stream is None:
            return Status()
        watch, given = self._watch, self._given
        caught_up = given >= watch.begin and not self._copies.left and not self._unfinished
        lag = max(0, max(watch.end, self._stream.end) - given)
        said = [watch.warning, *(f"table {'.'.join(table)} is not published any more" for table in self._gone)]
        return Status(
            lag_bytes=lag,
            kept_bytes=watch.kept_bytes,
            snapshots=self._copies.progress(),
            caught_up=caught_up,
            lag_seconds=watch.lag_seconds(given),
            warning="; ".join(filter(None, said)) or None,
        )

    def close(self) -> None:
        if self._stream:
            self._stream.close()
        if self._connection:
            self._connection.close()
        self._stream = self._connection = None

    def _next(self, passed: int) -> port.Batch | None:
        """What can be given out now: the stream first, then a chunk that the stream has passed."""
        decoded = self._streaming.decoded()
        batch = self._streamed(decoded) if decoded else None
        return batch if batch or self._streaming.held else self._copied(passed)

    def _copied(self, passed: int) -> port.Batch | None:
        """A chunk that the stream has passed; not between two parts of a transaction, which follow each other."""
        position = self._streaming.position
        if position.open_lsn:
            return None
        copied = self._copies.emptied(position) or self._copies.settled(passed, position)
        if copied is None:
            return None
        self._streaming.position, self._spooled = WalPosition.of(copied.position), True
        return replace(copied, intent=self._spool.put(copied))

    def _streamed(self, decoded: Batch) -> port.Batch | None:
        self._copies.told(decoded, self._streaming.open_xid, self._streaming.shape)
        return self._streaming.batch(decoded, self._copies.recent)

    def _ask(self) -> None:
        assert self._stream
        if time.monotonic() - self._asked > ASKING:
            self._asked = time.monotonic()
            self._stream.ask()

    def _look(self) -> None:
        """Now and then, what the slot holds back and which tables are published."""
        if time.monotonic() - self._looked < self._settings.looking:
            return
        assert self._connection
        self._looked = time.monotonic()
        self._watch.look()
        self._published(published_tables(self._connection, self._source.publication))

    def _published(self, tables: Mapping[Table, str]) -> None:
        gone = self._copies.published(tables)
        self._gone = [table for table in dict.fromkeys([*self._gone, *gone]) if table not in tables]

    def _idle(self) -> None:
        """Nothing of ours has been changed: the server need not keep its log for us. That is noted down first, so that a slot that
        somebody has moved on is told from this."""
        assert self._stream
        now, settings = time.monotonic(), self._settings
        if now - self._beaten >= settings.heartbeat:
            self._beaten = now
            self._watch.beat()
        if now - self._confirmed >= settings.idle and self._given > self._streaming.position.end:
            self._confirmed = now
            self._spool.confirm(self._given)
            self._stream.confirm(self._given)

    def _again(self, intent: Json) -> port.Batch:
        """The batch that was begun and not finished."""
        if intent["kind"] == "chunk":
            batch = self._spool.take(intent)
            self._streaming.position = WalPosition.of(batch.position)
            self._copies.go_on(self._streaming.position)
            return batch
        cut, position = Cut(), self._streaming.position
        if position.open_lsn:
            self._read_to(cut, Upto.of(position), written=True)
        self._read_to(cut, Upto(intent["lsn"], intent["open_lsn"], intent["open_changes"]), written=False)
        made = self._streamed(self._streaming.cut_off())
        assert made, "a batch that was begun had changes"
        return made

    def _look_up(
        self, relation: int, shape: Shape, keys: Sequence[pa.Array], columns: Sequence[str], rows: Places
    ) -> Mapping[int, Mapping[str, str]]:
        assert self._connection
        return CurrentValues(self._connection, relation, shape, keys, columns).of(rows)

    def _read_to(self, cut: Cut, upto: Upto, written: bool) -> None:
        """Reads the stream up to a place. What is written already, a part of a transaction that may be large, is not kept."""
        assert self._stream
        take = self._streaming.skip if written else self._streaming.add
        messages, self._behind = self._behind, []
        while True:
            place = cut.place(messages, upto)
            take(messages[:place])
            if place is not None:
                self._behind = messages[place:]
                return
            messages = self._stream.next(1.0)

    def _opened(self, at: WalPosition | None) -> Replication:
        """The stream; a slot that is still in use is waited for."""
        source, deadline = self._source, time.monotonic() + self._settings.patience
        start, password = at.end if at else 0, source.secret.read()
        while True:
            try:
                return Replication(
                    source.url,
                    source.slot,
                    [source.publication],
                    start=start,
                    bound=self._settings.batch_bytes,
                    password=password,
                )
            except SlotInUse:
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY)
