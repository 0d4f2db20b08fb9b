"""Reconciles captures: opens a snapshot of the source, waits until the log has all of it, compares table by table, repairs."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TypedDict, Unpack

from penstock.capture.port import Table
from penstock.capture.reconcile.catching_up import CatchingUp
from penstock.capture.reconcile.comparing import TableComparison
from penstock.capture.reconcile.folding import View
from penstock.capture.reconcile.followed import Followed
from penstock.capture.reconcile.mending import LogMender
from penstock.capture.reconcile.opening import check_reconcilable, open_snapshot
from penstock.capture.reconcile.results import ReconcileReport, Reconciliation, silent
from penstock.capture.reconcile.source import SourceSnapshot
from penstock.capture.registry import LOCK
from penstock.capture.repairs import Marked, Repairs, finished
from penstock.capture.writing.envelopes import Envelope
from penstock.capture.writing.journal import CaptureState
from penstock.capture.writing.writer import Writer
from penstock.errors import InUse, NotFound, NotYet

ROUNDS = 5  # comparisons, each under a snapshot of its own, until what was repaired or unsettled is equal


class How(TypedDict, total=False):
    """What may be said of a comparison."""

    shown: int  # differences of a table that are shown
    patience: float  # seconds without progress after which the log is not waited for any longer
    report: ReconcileReport


@dataclass(frozen=True)
class Asked:
    """What is to be compared, and how."""

    of: Followed
    tables: Sequence[Table]
    shown: int = 20
    patience: float = 600.0
    report: ReconcileReport = silent


@dataclass(frozen=True)
class Moment:
    """A snapshot of the source that the log has come up to, and the state of the capture before it was taken."""

    source: SourceSnapshot
    before: CaptureState


def reconcile(of: Followed, tables: Sequence[Table] | None = None, **how: Unpack[How]) -> Reconciliation:
    """Compares tables (None: all of the capture) with their topics; writes nothing to the source. No quiet time is needed: writers
    go on, and so does the capture. If the capture runs elsewhere, its log is waited for; if nobody runs it, it is run here until
    it has everything that the snapshot sees. NotYet if the log does not come that far."""
    asked, begun, rounds = asked_for(of, tables, **how), time.monotonic(), 0
    while True:
        rounds += 1
        with _moment(asked, CatchingUp(of, asked.patience, asked.report)) as moment:
            result = _compared(asked, moment, lambda: of.journal().state)
        if rounds == ROUNDS or not any(each.unsettled for each in result.tables):
            return replace(result, seconds=time.monotonic() - begun, rounds=rounds)


def repair(of: Followed, tables: Sequence[Table] | None = None, **how: Unpack[How]) -> Reconciliation:
    """Compares as `reconcile` does, and writes what differs to the topics, marked (`source.snapshot` is "repair"), until both are
    equal; a change that is newer than the snapshot is never overwritten. The result is that of the last comparison, `first` that of
    the first one. InUse while the capture runs elsewhere: it is the capture's own writer that writes, and there is one at a time.
    A repair that was killed is finished by the next start of the capture, or of the repair."""
    return repaired(asked_for(of, tables, **how))


def repaired(asked: Asked, resnapshot: bool = False) -> Reconciliation:
    """Rounds of comparing and writing, until nothing differs. resnapshot: one that was begun is about to be finished."""
    catching_up = CatchingUp(asked.of, asked.patience, asked.report, alone=True, resnapshot=resnapshot)
    begun, rounds, written = time.monotonic(), 0, dict.fromkeys(asked.tables, 0)
    first: Reconciliation | None = None
    while True:
        rounds += 1
        with _moment(asked, catching_up) as moment, written_by(asked.of, resnapshot) as writer:
            mender = _mender(asked, moment.source, writer)
            result = _compared(asked, moment, lambda: writer.state, mender)
        written = {table: count + mender.written.get(table, 0) for table, count in written.items()}
        first = first or result
        if result.equal or rounds == ROUNDS:
            told = [replace(each, repaired=written[each.table]) for each in result.tables]
            return replace(result, tables=told, seconds=time.monotonic() - begun, rounds=rounds, first=first)


@contextmanager
def written_by(of: Followed, resnapshot: bool = False) -> Iterator[Writer]:
    """The writer of the capture, with its lock held and everything that was begun finished. InUse if the capture runs."""
    with locked_writer(of) as writer:
        found = finished(writer, of.storage, writer.open(), resnapshot)
        if found.unfinished or found.state.open:
            raise NotYet(f"capture {of.name!a} has begun a batch and not finished it", hint="try again: it is finished first")
        yield writer


@contextmanager
def locked_writer(of: Followed) -> Iterator[Writer]:
    """The writer of the capture, not opened yet, with its lock held."""
    with of.storage.lock(LOCK, wait=False) as mine:
        if not mine:
            raise InUse(
                f"capture {of.name!a} is running, in another process of this machine",
                hint="stop it first: its topics are written by one process at a time",
            )
        definition = of.definition
        envelope = Envelope(of.name, of.engine().connector, "", definition.flat)
        yield Writer(of.log, definition.names, envelope, definition.partitions, of.fail)


@contextmanager
def _moment(asked: Asked, catching_up: CatchingUp) -> Iterator[Moment]:
    """Copies of tables are finished before the snapshot: rows that are read later would not be told from those that it sees."""
    check_reconcilable(asked.of.definition)
    while True:
        before = asked.of.journal().state
        with closing(open_snapshot(asked.of.definition)) as source:
            if not source.copied(before, asked.tables):
                catching_up.step("the copies of its tables are not finished")
                continue
            while not source.reached(asked.of.journal().state):
                if catching_up.step(f"it has not come to {source.position} yet") and source.believes:
                    break
            yield Moment(source, before)
            return


def _compared(asked: Asked, moment: Moment, state: Callable[[], CaptureState], mender: LogMender | None = None) -> Reconciliation:
    results = []
    for table in asked.tables:

        def view(table: Table = table) -> View:
            return _view(asked.of, moment, table, state())

        results.append(TableComparison(moment.source, table, view, asked.shown, asked.report, mender).run())
        if mender:
            mender.flush()
    return Reconciliation(asked.of.name, results, moment.source.snapshot, moment.source.position, state().offsets)


def _view(of: Followed, moment: Moment, table: Table, state: CaptureState) -> View:
    name = of.definition.names.topic(table)
    settled = (state.resnapshot or {}).get("settled", {})
    try:
        topic = of.log.topic(name)
    except NotFound:
        topic = None
    ends, since = state.offsets.get(name, ()), moment.before.offsets.get(name, ())
    return View(name, topic, ends, moment.source.sees, settled.get(name, ()), since, of.definition.flat)


def _mender(asked: Asked, source: SourceSnapshot, writer: Writer) -> LogMender:
    facts = {table: source.describe(table).facts for table in asked.tables}
    marked = Marked(asked.of.name, writer.envelope.connector, source.database)
    return LogMender(writer, Repairs(asked.of.storage), marked, source.time, facts, asked.report)


def asked_for(of: Followed, tables: Sequence[Table] | None, **how: Unpack[How]) -> Asked:
    known = of.definition.tables
    unknown = [table for table in tables or () if table not in known]
    if unknown:
        raise NotFound(
            f"capture {of.name!a} does not follow table {'.'.join(unknown[0])}",
            hint=f"it follows {', '.join('.'.join(table) for table in known)}",
        )
    return Asked(of, tuple(known if tables is None else tables), **how)
