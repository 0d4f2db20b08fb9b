"""PostgreSQL followed through its write-ahead log: an engine of the port. First the copies of its tables, merged with the stream by
visibility, then the stream alone."""

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.capture import port
from penstock.capture.definition import Secret
from penstock.capture.port import Json, Status
from penstock.capture.postgres.changes import Batch
from penstock.capture.postgres.connecting import connect, translated
from penstock.capture.postgres.copies import Copies
from penstock.capture.postgres.keys import Keys
from penstock.capture.postgres.lsn import lsn_of, lsn_text
from penstock.capture.postgres.position import WalPosition
from penstock.capture.postgres.replication import Replication, System
from penstock.capture.postgres.slots import describe_publication, describe_slot
from penstock.capture.postgres.spool import Spool
from penstock.capture.postgres.streaming import Cut, Streaming, Upto
from penstock.capture.postgres.types import Types
from penstock.errors import NotFollowable, SlotInUse, SlotLost
from penstock.storage.port import Storage

if TYPE_CHECKING:
    from penstock.capture.postgres.connecting import Connection

RETRY = 0.25  # seconds between two looks at a slot that is still in use
PATIENCE = 30.0  # after a kill the server lets go of the slot once it notices, at the latest after its wal_sender_timeout
ASKING = 0.02  # seconds between two questions how far the server has come, while a chunk waits for that
IDLE = 5.0  # seconds between two confirmations while nothing is changed
LOOKING = 2.0  # seconds between two looks at the slot, for the status


@dataclass(frozen=True)
class Source:
    """What is followed."""

    url: str
    slot: str
    publication: str
    secret: Secret = field(default_factory=Secret)  # read for each connection, so that it may be renewed


class PostgresEngine:
    """Follows the tables of a publication. storage: a place of its own, where a chunk lies until it is written."""

    connector = "postgresql"

    def __init__(self, source: Source, storage: Storage, patience: float = PATIENCE) -> None:
        self._source, self._spool, self._patience = source, Spool(storage), patience
        self._connection: Connection | None = None
        self._stream: Replication | None = None
        self._asked = self._looked = self._confirmed_at = 0.0
        self._kept: int | None = None

    @property
    def database(self) -> str:
        assert self._connection, "the engine has not been started"
        return self._connection.info.dbname

    def start(self, position: Json | None, unfinished: Json | None) -> None:
        self.close()
        self._connection = connect(self._source.url, f"penstock {self._source.slot}", password=self._source.secret.read())
        tables = describe_publication(self._connection, self._source.publication)
        if tables is None:
            raise NotFollowable(
                f"there is no publication {self._source.publication!a} in the database",
                hint="was it dropped? `penstock cdc remove` and `cdc add` begin anew",
            )
        at = WalPosition.of(position) if position else None
        self._check_slot(at)
        self._stream = self._opened(at)
        at = _checked(at, self._stream.system)
        types, keys = Types(self._connection), Keys(self._connection)
        self._streaming = Streaming(at, types, keys.of_relation)
        self._copies = Copies(self._connection, self._source.publication, tables, types, keys, at)
        self._unfinished = unfinished

    def next(self, wait: float) -> port.Batch | None:
        assert self._stream, "the engine has not been started"
        if self._unfinished:
            again = self._again(self._unfinished)
            self._unfinished = None
            return again
        self._copies.read()
        waiting = self._copies.waiting
        if waiting and time.monotonic() - self._asked > ASKING:
            self._asked = time.monotonic()
            self._stream.ask()
        messages = self._stream.next(min(wait, ASKING) if waiting else wait)
        passed = self._stream.passed
        self._streaming.add(messages)
        batch = self._given(passed)
        if batch is None and not messages and not waiting:
            self._idle(passed)
        return batch

    def written(self, position: Json) -> None:
        self._spool.clear()
        if self._stream:
            self._stream.confirm(WalPosition.of(position).end)

    def status(self) -> Status:
        if self._stream is None or self._connection is None:
            return Status()
        if time.monotonic() - self._looked > LOOKING:
            self._looked = time.monotonic()
            slot = describe_slot(self._connection, self._source.slot)
            self._kept = slot.kept_bytes if slot else None
        lag = max(0, self._stream.end - self._streaming.position.end)
        return Status(lag, self._kept, self._copies.progress())

    def close(self) -> None:
        if self._stream:
            self._stream.close()
        if self._connection:
            self._connection.close()
        self._stream = self._connection = None

    def _given(self, passed: int) -> port.Batch | None:
        """What can be given out now: the stream first, then a chunk that the stream has passed."""
        decoded = self._streaming.decoded()
        if decoded is not None:
            batch = self._streamed(decoded)
            if batch:
                return batch
        if self._streaming.held:
            return None
        chunk = self._copies.settled(passed, self._streaming.position)
        if chunk is None:
            return None
        self._streaming.position = WalPosition.of(chunk.position)
        return replace(chunk, intent=self._spool.put(chunk))

    def _idle(self, passed: int) -> None:
        """Nothing of ours has been changed for a while: the server need not keep its log for us. That is noted down first, so that
        a slot that somebody has moved on is told from this."""
        assert self._stream
        if time.monotonic() - self._confirmed_at < IDLE or self._streaming.held or passed <= self._streaming.position.end:
            return
        self._confirmed_at = time.monotonic()
        self._spool.confirm(passed)
        self._stream.confirm(passed)

    def _streamed(self, decoded: Batch) -> port.Batch | None:
        self._copies.told(decoded, self._streaming.shape)
        return self._streaming.batch(decoded)

    def _again(self, intent: Json) -> port.Batch:
        """The batch that was begun and not finished."""
        assert self._stream
        if intent["kind"] == "chunk":
            batch = self._spool.take(intent)
            self._streaming.position = WalPosition.of(batch.position)
            self._copies.go_on(self._streaming.position)
            return batch
        cut = Cut(Upto(intent["lsn"], intent["open_lsn"], intent["open_changes"]))
        while True:
            messages = self._stream.next(1.0)
            place = cut.before(messages)
            self._streaming.add(messages[:place])
            if place is None:
                continue
            made = self._streamed(self._streaming.cut_off())
            self._streaming.add(messages[place:])
            assert made, "a batch that was begun had changes"
            return made

    def _check_slot(self, at: WalPosition | None) -> None:
        """The slot must be there and have everything since the position."""
        assert self._connection
        slot = describe_slot(self._connection, self._source.slot)
        if slot is None or slot.lost:
            what = "was invalidated" if slot else "is not there any more"
            why = [f"the server says: {slot.invalidated or slot.wal_status}"] if slot else []
            raise SlotLost(f"replication slot {self._source.slot!a} {what}: changes since then are missing", *why, hint=RESNAPSHOT)
        if at and slot.confirmed_lsn is not None and slot.confirmed_lsn > max(at.end, self._spool.confirmed()):
            raise SlotLost(
                f"replication slot {self._source.slot!a} begins at {lsn_text(slot.confirmed_lsn)}, behind what was read",
                f"the log has everything up to {lsn_text(at.end)}; somebody has made the slot anew or moved it on",
                hint=RESNAPSHOT,
            )
        if at:
            with translated("look at the server's log"):
                ((now,),) = self._connection.execute("select pg_current_wal_lsn()::text")
            if lsn_of(now) < at.end:
                raise NotFollowable(
                    f"the server's log ends at {now}, before what was read from it ({lsn_text(at.end)})",
                    "it was restored from an older copy, or another server has taken over that had not all of it",
                    hint=RESNAPSHOT,
                )

    def _opened(self, at: WalPosition | None) -> Replication:
        """The stream; a slot that is still in use is waited for."""
        source, deadline = self._source, time.monotonic() + self._patience
        start, password = at.end if at else 0, source.secret.read()
        while True:
            try:
                return Replication(source.url, source.slot, [source.publication], start=start, password=password)
            except SlotInUse:
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY)


RESNAPSHOT = "`penstock cdc run NAME --resnapshot` makes a new slot, reads the tables again and writes what differs"


def _checked(at: WalPosition | None, system: System) -> WalPosition:
    """The position to go on from; NotFollowable if it is one of another server."""
    if at is None:
        return WalPosition(system.identifier, system.timeline, 0, 0)
    if at.system != system.identifier:
        raise NotFollowable(
            "this is another server than the one that was followed",
            f"its system identifier is {system.identifier}, that one's was {at.system}",
            hint=RESNAPSHOT,
        )
    if at.timeline != system.timeline:
        raise NotFollowable(
            f"the server is on timeline {system.timeline}; it was followed on timeline {at.timeline}",
            "it was restored, or a standby has taken over: positions of the two need not mean the same",
            hint=RESNAPSHOT,
        )
    return at
