"""A database followed by polls: an engine of the port for where reading is all that is allowed."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.capture import port
from penstock.capture.polling.comparing import Comparison
from penstock.capture.polling.polls import Poll, Polls
from penstock.capture.polling.source import PollSource
from penstock.capture.port import Json, SnapshotProgress, Status, Table, Transactions
from penstock.core.time import Clock, SystemClock, micros
from penstock.errors import Damaged
from penstock.storage.port import Storage

NAP = 0.25  # seconds between two looks at the clock


@dataclass(frozen=True)
class PollPosition:
    """What was written: the parts of a poll before this one, and all polls before it."""

    poll: int
    part: int
    time: int

    def json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of(position: Mapping[str, Any]) -> "PollPosition":
        try:
            return PollPosition(**position)
        except TypeError as error:
            raise Damaged(
                "the position of a capture cannot be read", str(error), hint="it was written by a later version"
            ) from error


class PollEngine:
    """Reads all tables every so often. A poll is one transaction, whose number `source.lsn` says: rows that were changed twice
    between two polls have changed once, rows that came and went in between were never there. The row as it was is not known."""

    def __init__(
        self, source: PollSource, tables: Sequence[Table], every: timedelta, storage: Storage, clock: Clock | None = None
    ) -> None:
        self._source, self._tables, self._every = source, tables, micros(every)
        self._polls, self._clock = Polls(storage), clock or SystemClock()
        self._comparison: Comparison | None = None
        self._steps: Iterator[None] | None = None
        self._last: Poll | None = None
        self._estimates: dict[Table, int] = {}

    @property
    def connector(self) -> str:
        return self._source.connector

    @property
    def database(self) -> str:
        return self._source.database

    def start(self, position: Json | None, unfinished: Json | None) -> None:
        self.close()
        self._source.open()
        self._unfinished, self._polled = unfinished, False
        self._at = PollPosition.of(position) if position else PollPosition(0, 0, 0)
        if position is None and unfinished is None:
            self._polls.forget_all()
        last = self._last = self._polls.last()
        needed = int(unfinished["poll"]) if unfinished else self._at.poll
        if needed > (last.number if last else 0):
            raise Damaged(
                f"poll {needed} of the capture is not in its directory, and the log knows of it",
                hint="restore the capture's directory, or begin with another name",
            )
        if last and self._at.poll < last.number:
            self._at = PollPosition(last.number, 0, self._at.time)
        self._polls.written(self._at.poll, self._at.part)

    def next(self, wait: float) -> port.Batch | None:
        if self._unfinished:
            part = int(self._unfinished["part"])
            self._unfinished = None
            return self._part(part)
        deadline = time.monotonic() + wait
        while True:
            if self._last and self._at.part < len(self._last.parts):
                return self._part(self._at.part)
            left = deadline - time.monotonic()
            if self._steps is None and self._clock.now() >= self.due:
                self._begin()
            if self._steps is not None:
                self._go_on(self._steps, deadline)
                if self._steps is None and not self._pending:
                    return None
            elif left > 0:
                time.sleep(min(left, NAP))
            if time.monotonic() >= deadline and not self._pending:
                return None

    def written(self, position: Json) -> None:
        at = PollPosition.of(position)
        self._polls.written(at.poll, at.part)

    def status(self) -> Status:
        reading = self._comparison
        progress = (
            [SnapshotProgress(table, reading.rows[table], self._estimates.get(table, 0)) for table in self._tables]
            if reading
            else ()
        )
        return Status(snapshots=progress, caught_up=self._polled and not self._pending, next_at=self.due)

    def close(self) -> None:
        self._steps = self._comparison = None
        self._source.close()

    @property
    def due(self) -> int:
        """When the next poll is, microseconds since 1970."""
        return self._last.begun + self._every if self._last else 0

    @property
    def _pending(self) -> bool:
        return self._last is not None and self._at.part < len(self._last.parts)

    def _begin(self) -> None:
        self._estimates = {table: self._source.estimate(table) for table in self._tables}
        self._comparison = Comparison(self._source, self._tables, self._polls, self._last, self._clock.now())
        self._steps = self._comparison.steps()

    def _go_on(self, steps: Iterator[None], deadline: float) -> None:
        """Some steps of the poll; behind the last one it counts."""
        while True:
            try:
                next(steps)
            except StopIteration:
                break
            if time.monotonic() >= deadline:
                return
        assert self._comparison
        self._last = self._comparison.poll
        self._polls.publish(self._last)
        self._at = PollPosition(self._last.number, 0, self._at.time)
        self._steps, self._comparison, self._polled = None, None, True

    def _part(self, number: int) -> port.Batch:
        poll = self._last
        assert poll
        changes = self._polls.take(poll, number)
        when = max(self._at.time, poll.begun)
        begins, ends = number == 0, number == len(poll.parts) - 1
        transactions = Transactions(
            pa.array([f"poll:{poll.number}"], pa.utf8()),
            *(np.array([-1]), np.array([poll.number]), np.array([when])),
            *(np.array([begins]), np.array([ends])),
        )
        self._at = PollPosition(poll.number, number + 1, when)
        intent = {"kind": "poll", "poll": poll.number, "part": number}
        return port.Batch(intent, self._at.json(), transactions, [changes], tables=poll.facts if begins else {})
