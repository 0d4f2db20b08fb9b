"""PostgreSQL followed through an outbox that triggers fill: an engine of the port that needs no right to replicate."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.capture import port
from penstock.capture.definition import Secret
from penstock.capture.port import Json, Status, Table
from penstock.capture.postgres.connecting import connect, translated
from penstock.capture.postgres.copy.snapshots import Snapshot
from penstock.capture.postgres.keys import Keys
from penstock.capture.postgres.values.types import Types
from penstock.capture.triggers.postgres.batching import Batches, Between
from penstock.capture.triggers.postgres.copies import Copies, ReadChunk
from penstock.capture.triggers.postgres.outbox import Outbox
from penstock.capture.triggers.postgres.outbox_sql import OutboxSql
from penstock.capture.triggers.postgres.position import OutboxPosition
from penstock.capture.triggers.postgres.records import Converter, OutboxRows
from penstock.capture.triggers.postgres.setting_up import installed
from penstock.capture.triggers.stepping import Stepping
from penstock.errors import NotFollowable, SlotLost
from penstock.storage.port import Storage

if TYPE_CHECKING:
    from penstock.capture.postgres.connecting import Connection

LOOKING = 2.0  # seconds between two looks at the size of the outbox and at the triggers
ANEW = "`penstock cdc remove NAME` and `cdc add` read the tables again"
FIRST_OF_ALL = ("0", 0)
REMOVING = 1.0  # seconds in which rows that were written are removed, before others have their turn


@dataclass(frozen=True)
class OutboxSource:
    """What is followed."""

    url: str
    sql: OutboxSql
    tables: Sequence[Table]
    secret: Secret = field(default_factory=Secret)


@dataclass
class _Window:
    """What is being given out: the changes that one snapshot sees and the one before did not, then a chunk read under it."""

    earlier: str
    later: str
    chunk: ReadChunk | None
    parts: Iterator[tuple[bytes, bool]]
    fresh: bool  # it ends at a snapshot that was taken behind the start


class OutboxEngine(Stepping):
    """Follows tables whose triggers fill an outbox. The changes of a row come in their order, and transactions whole. Transactions
    are in the order of their last changes, which need not be that of their commits where they changed different rows."""

    connector = "postgresql"

    def __init__(
        self, source: OutboxSource, storage: Storage, outbox: Callable[["Connection", OutboxSql], Outbox] = Outbox
    ) -> None:
        """outbox: what reads it."""
        super().__init__(storage)
        self._source, self._read = source, outbox
        self._reading: Connection | None = None  # the outbox is read here, which takes it for as long as there is more
        self._catalog: Connection | None = None
        self._window: _Window | None = None
        self._looked, self._kept = 0.0, None

    _kept: int | None

    @property
    def database(self) -> str:
        assert self._catalog, "the engine has not been started"
        return self._catalog.info.dbname

    def start(self, position: Json | None, unfinished: Json | None) -> None:
        self.close()
        name, password = f"penstock {self._source.sql.schema}", self._source.secret.read()
        self._reading = connect(self._source.url, name, password=password)
        self._catalog = connect(self._source.url, name, password=password)
        self._outbox = self._read(self._reading, self._source.sql)
        at = self._at = self._checked(OutboxPosition.of(position) if position else None)
        types, keys = Types(self._catalog), Keys(self._catalog)
        self._copies = Copies(self._source.tables, types)
        self._batches = Batches(at, Converter(types, keys))
        self._unfinished, self._caught_up = unfinished, False
        self._since = at.snapshot
        self._removing: tuple[str, int] | None = FIRST_OF_ALL if at.windows else None
        if at.later and not unfinished:
            self._window = self._opened(at.snapshot, at.later, None, fresh=False)
        self._pacing.busy()

    def written(self, position: Json) -> None:
        self._spool.clear()
        reached, self._at = self._at.windows, OutboxPosition.of(position)
        self._removing = FIRST_OF_ALL if self._at.windows > reached else self._removing
        if self._reading and self._window is None:
            self._emptied()

    def status(self) -> Status:
        if self._catalog is None:
            return Status()
        if time.monotonic() - self._looked > LOOKING:
            self._looked = time.monotonic()
            self._check_triggers(self._catalog)
            self._kept = Outbox(self._catalog, self._source.sql).size()
        progress = self._copies.progress(self._catalog, self._batches.position)
        return Status(None, self._kept, progress, self._caught_up and not progress)

    def close(self) -> None:
        self._window = None
        for connection in (self._reading, self._catalog):
            if connection:
                with suppress(Exception):
                    connection.close()
        self._reading = self._catalog = None

    def _step(self) -> port.Batch | None:
        assert self._reading, "the engine has not been started"
        if self._window is None and not self._emptied():
            return None
        window = self._window = self._window or self._new_window()
        if window is None:
            self._caught_up = True
            return None
        part = next(window.parts, None)
        if part:
            rows, last = OutboxRows.parse(part[0]), part[1]
            of = Between(window.earlier, window.later, last, self._removed)
            batch = self._batches.batch(rows, self._outbox.known, of)
            if last and window.chunk is None:
                self._end(window)
            elif last:
                window.earlier = self._since = window.later
            return batch
        self._end(window)
        return self._chunk(window.chunk) if window.chunk else None

    def _end(self, window: _Window) -> None:
        self._window, self._since, self._caught_up = None, window.later, self._caught_up or window.fresh

    def _chunk(self, chunk: ReadChunk) -> port.Batch:
        return self._put_away(self._copies.batch(chunk, replace(self._batches.position, snapshot=self._since)))

    def _go_on_from(self, position: Json) -> None:
        self._batches.position = OutboxPosition.of(position)

    def _new_window(self) -> _Window | None:
        """What there is between the last snapshot and one of now."""
        assert self._reading
        if self._copies.todo(self._batches.position):
            with translated("take a snapshot"), self._reading.transaction():
                self._reading.execute("set transaction isolation level repeatable read read only")
                ((later,),) = self._reading.execute("select pg_current_snapshot()::text")
                chunk = self._copies.read(self._reading, self._batches.position)
            return self._opened(self._since, later, chunk, fresh=True)
        later, any_new = self._outbox.news(self._since)
        if any_new:
            return self._opened(self._since, later, None, fresh=True)
        self._since = later
        return None

    def _opened(self, earlier: str, later: str, chunk: ReadChunk | None, fresh: bool) -> _Window:
        self._outbox.look_at_shapes()
        position = self._batches.position
        return _Window(earlier, later, chunk, self._outbox.read(earlier, later, (position.last, position.seq)), fresh)

    def _rows_again(self, intent: Json) -> port.Batch:
        self._outbox.look_at_shapes()
        after, upto = tuple(intent["after"]), tuple(intent["upto"])
        ((rows, _),) = self._outbox.read(intent["earlier"], intent["later"], after, upto)
        of = Between(intent["earlier"], intent["later"], intent["last"], intent["removed"])
        made = self._batches.batch(OutboxRows.parse(rows), self._outbox.known, of)
        self._since = self._batches.position.snapshot
        if not of.last:
            self._window = self._opened(of.earlier, of.later, None, fresh=False)
        return made

    def _emptied(self) -> bool:
        """Removes what was written, for a while; whether all of it is gone."""
        deadline = time.monotonic() + REMOVING
        while self._removing and time.monotonic() < deadline:
            self._removing = self._outbox.remove(self._at.snapshot, self._at.windows, self._removing)
            self._removed = self._at.windows
        return self._removing is None

    def _checked(self, at: OutboxPosition | None) -> OutboxPosition:
        """The position to go on from; SlotLost or NotFollowable if the outbox is not the one, or not as far as it should be."""
        assert self._catalog
        about = self._outbox.about()
        self._removed = about.windows
        self._check_triggers(self._catalog)
        if at is None:
            return OutboxPosition(about.id)
        if about.id != at.outbox:
            raise SlotLost("the outbox was made anew: changes in between are missing", hint=ANEW)
        if about.windows > at.windows:
            raise SlotLost(
                "the outbox was emptied of changes that the log does not have",
                f"{about.windows} times it was, and the log knows of {at.windows}: it was restored from an older copy",
                hint=ANEW,
            )
        now, _ = self._outbox.news(at.snapshot)
        if about.windows < at.removed or Snapshot.parse(now).xmax < Snapshot.parse(at.snapshot).xmax:
            raise NotFollowable(
                "the database is not as far as what was read from it",
                "it was restored from an older copy, or another server has taken over that had not all of it",
                hint=ANEW,
            )
        return at

    def _check_triggers(self, connection: "Connection") -> None:
        there = installed(connection, self._source.sql)
        for table in self._source.tables:
            if not there.get(table):
                what = "are switched off" if table in there else "are not there any more"
                raise SlotLost(f"the triggers of table {'.'.join(table)} {what}: changes since then are missing", hint=ANEW)
