"""How a running capture is told: a line that is rewritten on a terminal, and lines at intervals elsewhere."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from penstock.capture.definition import CaptureDefinition
from penstock.capture.port import SnapshotProgress, Table
from penstock.capture.runner import Progress
from penstock.cli.flow.state import size_text

JOINT = " · "
BAR = 10  # characters
OVER = 5.0  # seconds over which the speed of a copy is taken
EVERY = 10.0  # seconds between two lines where nothing is rewritten
LOUD = 60.0  # seconds between two warnings of the same

Say = Callable[[str], None]


@dataclass
class Speed:
    """Rows a second of one copy, over the last moments."""

    seen: deque[tuple[float, int]] = field(default_factory=deque)

    def with_rows(self, rows: int, now: float) -> float:
        self.seen.append((now, rows))
        while len(self.seen) > 2 and self.seen[0][0] < now - OVER:
            self.seen.popleft()
        (since, before), (until, after) = self.seen[0], self.seen[-1]
        return (after - before) / (until - since) if until > since else 0.0


class Teller:
    """What there is to say of one capture."""

    def __init__(self, definition: CaptureDefinition, clock: Callable[[], float] = time.monotonic) -> None:
        self._name, self._clock = definition.name, clock
        self._tables = len(definition.tables)
        self._speeds: dict[Table, Speed] = {}
        self._copying: list[Table] = []
        self._waiting: str | None = None
        self._warned_at: float | None = None
        self._began, self._since = False, 0.0
        self._told_at, self._told_changes = clock(), 0

    def line(self, progress: Progress) -> str:
        """The line that is rewritten."""
        if progress.waiting:
            return JOINT.join([self._name, f"waiting for {self._clock() - self._since:.0f} s", progress.waiting])
        if progress.status.snapshots:
            return JOINT.join([self._name, *self._copy(progress.status.snapshots)])
        return JOINT.join([self._name, *_stream(progress)])

    def events(self, progress: Progress) -> list[str]:
        """What deserves a line of its own, wherever it is said."""
        return [*self._start(progress), *self._waits(progress), *self._copied(progress), *self._warned(progress)]

    def due(self, progress: Progress) -> bool:
        """Whether a line at intervals is due: some time has passed, and something has moved."""
        moved = progress.changes != self._told_changes or bool(progress.status.snapshots)
        if self._clock() - self._told_at < EVERY or not moved or progress.waiting:
            return False
        self._told_at, self._told_changes = self._clock(), progress.changes
        return True

    def closing(self, progress: Progress, seconds: float, how: str) -> str:
        return (
            f"{self._name}: {how}{JOINT}{_count(progress.changes, 'change')} of {_count(self._tables, 'table')} in {seconds:.1f} s"
        )

    def _start(self, progress: Progress) -> list[str]:
        if self._began or progress.waiting:
            return []
        self._began = True
        return [f"{self._name}: following {_count(self._tables, 'table')}"]

    def _waits(self, progress: Progress) -> list[str]:
        before, self._waiting = self._waiting, progress.waiting
        if progress.waiting and not before:
            self._since = self._clock()
        if progress.waiting and progress.waiting != before:
            return [f"{self._name} waits, and tries again: {progress.waiting}"]
        if before and not progress.waiting:
            return [f"{self._name} goes on after {self._clock() - self._since:.0f} s"]
        return []

    def _copied(self, progress: Progress) -> list[str]:
        """Tables whose copies have come to their end."""
        if progress.waiting:
            return []
        now = [each.table for each in progress.status.snapshots]
        done = [table for table in self._copying if table not in now]
        self._copying = now
        return [f"{self._name}: table {_name(table)} is copied" for table in done]

    def _warned(self, progress: Progress) -> list[str]:
        """What somebody should look at: when it begins, and again and again while it lasts."""
        warning = progress.status.warning
        if not warning:
            self._warned_at = None
            return []
        if self._warned_at is not None and self._clock() - self._warned_at < LOUD:
            return []
        self._warned_at = self._clock()
        return [f"{self._name}: WARNING: {warning}"]

    def _copy(self, copies: Sequence[SnapshotProgress]) -> list[str]:
        first = copies[0]
        speed = self._speeds.setdefault(first.table, Speed()).with_rows(first.rows, self._clock())
        known = first.estimate > first.rows
        parts = [f"copying {_name(first.table)} {_bar(first)}" if known else f"copying {_name(first.table)}"]
        if known and speed > 0:
            parts.append(f"{time_left((first.estimate - first.rows) / speed)} left")
        parts.append(f"{first.rows:,} of about {first.estimate:,} rows" if known else f"{first.rows:,} rows")
        if len(copies) > 1:
            parts.append(_count(len(copies) - 1, "more table"))
        return [*parts, f"{speed:,.0f} rows/s"]


def _stream(progress: Progress) -> list[str]:
    status = progress.status
    parts = [f"{progress.rate:,.0f} changes/s"]
    if status.lag_bytes is not None:
        seconds = 0.0 if not status.lag_bytes else progress.behind if status.lag_seconds is None else status.lag_seconds
        parts.append(f"lag {size_text(status.lag_bytes)}" + ("" if seconds is None else f", {seconds:.1f} s"))
    if status.kept_bytes is not None:
        parts.append(f"log kept {size_text(status.kept_bytes)}")
    return [*parts, f"{progress.changes:,} changes"]


def _bar(copy: SnapshotProgress) -> str:
    share = copy.rows / copy.estimate
    full = int(share * BAR)
    return f"▕{'█' * full}{' ' * (BAR - full)}▏ {share:.0%}"


def time_left(seconds: float) -> str:
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60:02d} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _name(table: Table) -> str:
    return ".".join(part for part in table if part)


class Telling:
    """Tells of several captures. rewrite: takes the line of each, where they are rewritten in place; None: lines at intervals."""

    def __init__(
        self, definitions: Sequence[CaptureDefinition], say: Say, rewrite: Callable[[Sequence[str]], None] | None = None
    ) -> None:
        self._tellers = {definition.name: Teller(definition) for definition in definitions}
        self._lines: dict[str, str] = {}
        self._say, self._rewrite, self._lock = say, rewrite, threading.Lock()

    def report(self, definition: CaptureDefinition, progress: Progress) -> None:
        """Called by the threads of captures."""
        with self._lock:
            teller = self._tellers[definition.name]
            for event in teller.events(progress):
                self._say(event)
            if self._rewrite:
                self._lines[definition.name] = teller.line(progress)
                self._rewrite(list(self._lines.values()))
            elif teller.due(progress):
                self._say(teller.line(progress))

    def closing(self, definition: CaptureDefinition, progress: Progress, seconds: float, how: str) -> str:
        """The last line of a capture. how: it has caught up, was stopped, or has failed."""
        return self._tellers[definition.name].closing(progress, seconds, how)
