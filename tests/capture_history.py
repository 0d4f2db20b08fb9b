"""A database in miniature, for snapshots taken while it is written to: transactions that lock what they change, whose commits stand
in the log before they are visible; and a capture of it that is killed now and then."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import numpy as np
import pyarrow as pa

from penstock.capture.postgres.copy.snapshots import Chunk, ChunkMerge, Snapshot

KEYS = 12
CHUNK = 3
ROUND = 1 << 32
EVERYTHING = -1  # the key of a truncate
LONG = 2_000  # steps; a history ends after a few hundred

Rows = dict[int, str]


@dataclass
class Transaction:
    xid: int
    changes: list[tuple[int, str | None]] = field(default_factory=list)  # key and value; None: gone
    lsn: int | None = None

    def apply(self, rows: Rows) -> None:
        for key, value in self.changes:
            if key == EVERYTHING:
                rows.clear()
            elif value is None:
                rows.pop(key, None)
            else:
                rows[key] = value


class Database:
    """One table. A key is changed by one transaction at a time, until that is visible to all."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._next = random.choice([5, ROUND - 4, 3 * ROUND - 2, ROUND + ROUND // 2, 2 * ROUND + 3])
        self._writes = 0
        self.lsn = 100
        self.running: list[Transaction] = []
        self.log: list[Transaction] = []  # by commit
        self.visible: Rows = {key: "first" for key in range(KEYS) if random.random() < 0.7}
        self.first = dict(self.visible)

    def step(self) -> None:
        """Something happens."""
        self._random.choice([self._begin, self._write, self._write, self._write, self._commit, self._show, self._roll_back])()

    def _begin(self) -> None:
        if len(self.running) < 4:
            self.running.append(Transaction(self._next))
            self._next += self._random.choice([1, 1, 2])

    def _open(self) -> list[Transaction]:
        return [each for each in self.running if each.lsn is None]

    def _write(self) -> None:
        locked = {key for each in self.running for key, _ in each.changes}
        if not self._open() or EVERYTHING in locked:
            return
        mine = self._random.choice(self._open())
        if not locked and self._random.random() < 0.05:
            mine.changes.append((EVERYTHING, None))
            return
        free = [key for key in range(KEYS) if key not in locked]
        for key in self._random.sample(free, min(len(free), self._random.choice([1, 1, 2]))):  # two: a change of the key, or more
            self._writes += 1
            mine.changes.append((key, None if self._random.random() < 0.3 else f"w{self._writes}"))

    def _commit(self) -> None:
        if self._open():
            self._end(self._random.choice(self._open()))

    def _end(self, mine: Transaction) -> None:
        self.lsn += self._random.randrange(1, 10)
        mine.lsn = self.lsn
        self.log.append(mine)

    def _show(self) -> None:
        """A commit becomes visible, in any order: each may have waited for a standby."""
        waiting = [each for each in self.running if each.lsn is not None]
        if waiting:
            mine = self._random.choice(waiting)
            mine.apply(self.visible)
            self.running.remove(mine)

    def _roll_back(self) -> None:
        if self._open() and self._random.random() < 0.3:
            self.running.remove(self._random.choice(self._open()))

    def settle(self) -> None:
        for mine in self._open():
            self._end(mine)
        while self.running:
            self._show()

    def snapshot(self) -> Snapshot:
        running = frozenset(each.xid for each in self.running)
        return Snapshot(min(running, default=self._next), self._next, running)


@dataclass
class Log:
    """What was captured: durable, as is how far the snapshot and the stream have come."""

    entries: list[tuple[int, str | None]] = field(default_factory=list)
    streamed: int = 0  # of the database's log
    key: int = -1  # the last one of the chunks given out

    def fold(self) -> Rows:
        """As far as the chunks have come."""
        rows: Rows = {}
        Transaction(0, self.entries).apply(rows)
        return {key: value for key, value in rows.items() if key <= self.key}

    def expected(self, database: Database) -> Rows:
        """The table after the transactions that were streamed, as far as the chunks have come."""
        rows = dict(database.first)
        for each in database.log[: self.streamed]:
            each.apply(rows)
        return {key: value for key, value in rows.items() if key <= self.key}


class Capture:
    """Follows the database into the log from where that stands; a new one after each kill."""

    def __init__(self, database: Database, log: Log, merge: Callable[[list[int]], ChunkMerge]) -> None:
        self._database, self._log = database, log
        self._merge = merge([each.xid % ROUND for each in database.log[: log.streamed]])
        self._open: list[int] | None = None
        self.done = False

    def stream(self) -> None:
        """The next transaction of the log."""
        if self._log.streamed < len(self._database.log):
            mine = self._database.log[self._log.streamed]
            keys = [str(key) for key, _ in mine.changes if key != EVERYTHING]
            self._merge.changed(np.full(len(keys), mine.xid % ROUND, np.uint32), pa.array(keys, pa.utf8()))
            if len(keys) < len(mine.changes):
                self._merge.truncated(mine.xid % ROUND)
            self._log.entries += mine.changes
            self._log.streamed += 1

    def read(self) -> None:
        """The next chunk, if there is none open."""
        snapshot = self._database.snapshot()
        if self._open is None and not self.done and self._merge.may_open(snapshot):
            found = sorted(key for key in self._database.visible if key > self._log.key)[:CHUNK]
            keys = pa.array(map(str, found), pa.utf8())
            values = [self._database.visible[key] for key in found]
            rows = pa.table({"key": pa.array(found, pa.int64()), "value": pa.array(values, pa.utf8())})
            self._merge.open(Chunk(rows, keys, snapshot, self._database.lsn))
            self._open = found

    def give(self) -> None:
        """The rows of the chunk, once they may be given out."""
        log, passed = self._log, self._database.log[: self._log.streamed]
        reached = self._database.lsn if len(passed) == len(self._database.log) else (passed[-1].lsn or 0) if passed else 0
        settled = self._merge.settled(reached)
        if settled is not None and self._open is not None:
            log.entries += [(row["key"], row["value"]) for row in settled.rows.to_pylist()]
            log.key = self._open[-1] if self._open else KEYS
            self.done, self._open = not self._open, None


def exact(seed: int, merge: Callable[[list[int]], ChunkMerge] = ChunkMerge) -> bool:
    """Whether in a random history the log folded is at each moment what the transactions streamed so far make of the table, for the
    keys that the chunks have passed; and in the end the table. An end that is right would not do: it forgives a row that was given
    out before the changes that lead to it."""
    random = Random(seed)
    database, log = Database(random), Log()
    capture = Capture(database, log, merge)
    for _ in range(LONG):
        for _ in range(random.randrange(4)):
            database.step()
        random.choice([capture.stream, capture.read, capture.give])()
        if log.fold() != log.expected(database):
            return False
        if random.random() < 0.03:
            capture = Capture(database, log, merge)  # killed
        if capture.done:
            break
    database.settle()
    while log.streamed < len(database.log):
        capture.stream()
    return capture.done and log.fold() == database.visible
