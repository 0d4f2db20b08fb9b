"""Runs a capture: asks its engine for batches, writes each to the log, tells the engine what is durable; waits for a database, or a
disk, that is away, and goes on."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from penstock.capture.definition import CaptureDefinition
from penstock.capture.port import Batch, Engine, Status
from penstock.capture.registry import LOCK
from penstock.capture.repairs import finished
from penstock.capture.writing.envelopes import Envelope
from penstock.capture.writing.journal import CaptureState
from penstock.capture.writing.writer import Writer, nothing
from penstock.errors import InUse, Passing, PenstockError
from penstock.log.port import Log
from penstock.storage.port import Storage

WAIT = 0.5  # seconds until it is looked whether the run should end
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 10.0  # seconds between two tries to reach what is away
REPORT = 0.2  # seconds between two reports
PATIENCE = 60.0  # seconds in a row that a run with an end waits for what is away
MOMENT = 1.0  # seconds for which the lock may be held by somebody who only looks


@dataclass(frozen=True)
class Progress:
    """How a run stands."""

    changes: int = 0  # written by this run
    batches: int = 0
    rate: float = 0.0  # changes a second, over the last moments
    behind: float | None = None  # seconds from the last commit that was written until it was; None: nothing was yet
    status: Status = field(default_factory=Status)
    waiting: str | None = None  # what is away, in one line
    tables: int = 0


Report = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Nobody looks."""


class CaptureRun:
    """One run of one capture. `run` returns when it is told to stop, or, with catch_up, once everything that was in the database
    at the start is in the log. Errors that do not pass by themselves are raised."""

    def __init__(
        self,
        definition: CaptureDefinition,
        log: Log,
        storage: Storage,
        engine: Engine,
        report: Report = silent,
        fail: Callable[[str], None] = nothing,
    ) -> None:
        self._definition, self._storage, self._engine, self._report = definition, storage, engine, report
        empty = Envelope(definition.name, engine.connector, "", definition.flat)
        self._writer = Writer(log, definition.names, empty, definition.partitions, fail)
        self._stopping = threading.Event()
        self._rate = _Rate()
        self.progress = Progress()

    def stop(self) -> None:
        """Ends the run behind the batch that it is at; from any thread."""
        self._stopping.set()

    def run(self, catch_up: bool = False, resnapshot: bool = False) -> CaptureState:
        """The state behind the last batch. resnapshot: one that was begun, without whose end nothing is run, is about to be
        finished."""
        with self._locked():
            pause, since = FIRST_PAUSE, time.monotonic()
            try:
                while not self._stopping.is_set():
                    batches = self.progress.batches
                    try:
                        self._follow(catch_up, resnapshot)
                        break
                    except Passing as error:
                        if self.progress.batches > batches:
                            pause, since = FIRST_PAUSE, time.monotonic()
                        if catch_up and time.monotonic() - since > PATIENCE:
                            raise
                        pause = min(LONGEST_PAUSE, 2 * pause)
                        self._told(replace(self.progress, waiting=str(error).splitlines()[0]), now=True)
                        self._stopping.wait(pause * random.uniform(0.5, 1.0))
            finally:
                self._engine.close()
            return self._writer.state

    def _follow(self, catch_up: bool, resnapshot: bool) -> None:
        found = finished(self._writer, self._storage, self._writer.open(), resnapshot)
        self._engine.start(found.state.position, found.unfinished)
        self._writer.envelope = replace(self._writer.envelope, database=self._engine.database)
        self._told(replace(self.progress, waiting=None), now=True)
        while not self._stopping.is_set():
            batch = self._engine.next(WAIT)
            if batch is not None:
                self._write(batch)
            if catch_up and self._engine.status().caught_up:
                break
            self._told(self.progress)
        self._told(self.progress, now=True)

    def _write(self, batch: Batch) -> None:
        before = self._writer.changes
        state = self._writer.write(batch)
        assert state.position is not None
        self._engine.written(state.position)
        changes = self._writer.changes - before
        now = time.time_ns() // 1000
        behind = max(0.0, (now - int(batch.transactions.time[-1])) / 1e6) if len(batch.transactions) else self.progress.behind
        done = replace(self.progress, changes=self.progress.changes + changes, batches=self.progress.batches + 1)
        self.progress = replace(done, rate=self._rate.with_more(changes), behind=behind, tables=len(state.tables))

    def _told(self, progress: Progress, now: bool = False) -> None:
        self.progress = progress
        if now or self._rate.due(REPORT):
            status = progress.status if progress.waiting else self._engine.status()
            self.progress = replace(progress, status=status, rate=self._rate.now())
            self._report(self.progress)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with taken(self._storage, self._definition.name):
            yield


@contextmanager
def taken(storage: Storage, capture: str) -> Iterator[None]:
    """Holds the lock of a capture; InUse if it runs elsewhere."""
    deadline = time.monotonic() + MOMENT
    while True:
        with storage.lock(LOCK, wait=False) as mine:
            if mine:
                yield
                return
        if time.monotonic() > deadline:
            raise InUse(
                f"capture {capture!a} is running already, in another process of this machine",
                hint="stop that one first; a capture is run once",
            )
        time.sleep(MOMENT / 20)


def runs(storage: Storage) -> bool | None:
    """Whether somebody has the capture now; None where this user cannot know."""
    try:
        with storage.lock(LOCK, wait=False) as free:
            return not free
    except PenstockError:  # such as in a home that cannot be written to
        return None


class _Rate:
    """Changes a second over the last few seconds."""

    OVER = 3.0

    def __init__(self) -> None:
        self._seen: list[tuple[float, int]] = []
        self._told = 0.0

    def with_more(self, count: int) -> float:
        self._seen.append((time.monotonic(), count))
        return self.now()

    def now(self) -> float:
        since = time.monotonic() - self.OVER
        self._seen = [each for each in self._seen if each[0] >= since]
        return sum(count for _, count in self._seen) / self.OVER

    def due(self, every: float) -> bool:
        if time.monotonic() - self._told < every:
            return False
        self._told = time.monotonic()
        return True
