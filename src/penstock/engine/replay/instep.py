"""Sinks kept in step, provably: a store compared with the log, put right, or filled anew, while its flow runs or not (G39).

The flow is not stopped: what the sink should hold is computed on the side, brought to the epoch that the store has, and written in
a transaction of the store together with its marker. A driver that runs meanwhile goes on behind that marker."""

import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.arrow import filled
from penstock.core.columns import TIME
from penstock.core.time import SystemClock
from penstock.engine.execute.program import Program, lower
from penstock.engine.flows.listing import runs
from penstock.engine.replay.expected import Expected, Repeated, from_view, staged_changes, topics_of
from penstock.engine.run.epoch.decision import Decision, Decisions
from penstock.engine.run.epoch.holds import held_last
from penstock.engine.run.epoch.sink_status import last_told
from penstock.engine.run.letters import RefusedRows
from penstock.engine.run.outputs import spec_of
from penstock.engine.run.runtime import Runtime
from penstock.errors import BadInput, Mismatch, NotFound, SinkLost, SinkUnavailable
from penstock.plan import Output, Plan
from penstock.plan.meaning import is_of
from penstock.sinks.port import Marker, SinkContext
from penstock.sinks.stores.comparing import Compared, Comparison
from penstock.sinks.stores.content import key_of
from penstock.sinks.stores.definition import StoreDefinition
from penstock.sinks.stores.keys import keys_of
from penstock.sinks.stores.port import Changes, Legible, Note, Refusal, Store, Transaction, Versioned
from penstock.sinks.stores.sink import kept, refusing, rows_refused, with_reasons
from penstock.sinks.stores.two_phase.definition import TwoPhaseDefinition, marker_name
from penstock.storage.local import LocalStorage
from penstock.storage.port import Storage

PATIENCE = 60.0  # seconds that a sink may take to come to the epoch it is compared at
_TRIES, _PAUSE = 5, 0.5

Progress = Callable[[str, int, int], None]  # what is being done; how much of it is done, of how much (0: not known)


@dataclass(frozen=True)
class InStep:
    """What was found of a sink, and what was written."""

    flow: str
    sink: str
    store: str
    epoch: int  # at which it was compared
    compared: Compared
    by: str = "the log"  # what says what it should hold
    written: int = 0  # rows put in or taken out
    refused: int = 0  # rows that the store does not take: dead letters since they were first delivered


@dataclass(frozen=True)
class StorePlace:
    """A store, and what the sink is called in its marker there."""

    definition: StoreDefinition
    name: str


@dataclass
class SinkCheck:
    """One store of one flow. view: a view of the same step that says what it should hold; None: the log does."""

    runtime: Runtime
    plan: Plan
    output: Output
    place: StorePlace
    view: str | None = None
    progress: Progress = field(default=lambda what, done, total: None)
    decisions: Decisions = field(init=False)
    program: Program = field(init=False)

    def __post_init__(self) -> None:
        self.program = lower(self.plan, topics_of(self.runtime.log, self.plan))
        self.decisions = Decisions(self.runtime.flow_storage(self.plan.flow), self.plan.flow)
        last = self.decisions.last()
        if last and not is_of(self.plan, last.fingerprint):
            raise Mismatch(
                f"flow {self.plan.flow} has changed since it last ran",
                "its sinks belong to the steps as they were",
                hint="run it first",
            )

    def reconcile(self, repair: bool = False) -> InStep:
        """Compares; with repair, writes what differs. SinkUnavailable if the store is not there, or lags."""
        with self._expected() as expected, self._opened() as store:
            return self._settled(store, expected, wait=True, write=lambda compared: repair and not compared.equal)

    def rebuild(self, agreed: Callable[[Compared], bool]) -> InStep:
        """Makes the store hold what it should, whatever it holds or lacks, and has its marker say so. agreed: asked with what would
        be written."""
        with self._expected() as expected, self._opened() as store:
            return self._settled(store, expected, wait=False, write=agreed)

    @contextmanager
    def _expected(self) -> Iterator[Expected]:
        with self._scratch() as scratch, held_last(self.decisions) as last:
            expected = self._computed(last, scratch)
            expected.content.kept = self.place.definition.kept
            yield replace(expected, incarnation=last.incarnation)

    def _computed(self, last: Decision, scratch: Storage) -> Expected:
        keep = self.place.definition.holds
        if self.view is not None:
            self.progress(f"reading view {self.view}", 0, 0)
            return from_view(self.runtime.home, self.program, self.output, keep, self.view, scratch)
        self.progress("computing what it should hold", 0, 0)
        seen = lambda done, total: self.progress("computing what it should hold", done, total)  # noqa: E731
        flow = Repeated(self.runtime.log, self.decisions, self.plan, self.runtime.context_of)
        return flow.output(self.output, keep, last, scratch, seen)

    @contextmanager
    def _scratch(self) -> Iterator[Storage]:
        path = self.runtime.home / "replay" / uuid.uuid4().hex
        try:
            yield LocalStorage(str(path), sync=False)
        finally:
            shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def _opened(self) -> Iterator[Store]:
        spec = replace(spec_of(self.program, self.output), name=self.place.name)
        store = self.place.definition.store(
            SinkContext(spec, self.runtime.log, self.decisions.storage, self.runtime.home / "views")
        )
        try:
            store.open()
            yield store
        finally:
            store.close()

    def _settled(self, store: Store, expected: Expected, wait: bool, write: Callable[[Compared], bool]) -> InStep:
        comparison = self._compared(store, expected, wait)
        found = comparison.found
        by = f"view {self.view}" if self.view is not None else "the log"
        result = InStep(self.plan.flow, self.output.id, store.called, expected.epoch, found, by)
        if not write(found):
            return result
        self.progress("writing", 0, 0)
        left = _TRIES
        while True:
            try:
                return self._written(store, expected, comparison, result)
            except SinkUnavailable:  # its driver was faster
                left -= 1
                if left < 0:
                    raise
            time.sleep(_PAUSE)
            store.open()
            if not named(expected):  # rows that nothing tells apart: what is lacking now is another question
                comparison = self._compared(store, expected, wait)

    def _compared(self, store: Store, expected: Expected, wait: bool) -> Comparison:
        until = time.monotonic() + PATIENCE
        while True:
            running = runs(self.decisions)
            with store.transaction() as transaction:
                if not isinstance(transaction, Legible):
                    raise BadInput(f"{store.called} cannot be read back", hint="penstock flow reset starts the flow over")
                has = self._epoch_of(transaction)
                if not wait or has >= self._last_with_rows(expected.epoch):
                    return self._compared_in(transaction, expected, has)
            self._check_coming(store.called, has, expected.epoch, running and time.monotonic() < until)
            self.progress(f"waiting for epoch {expected.epoch}", has, expected.epoch)
            time.sleep(_PAUSE)

    def _check_coming(self, store: str, has: int, wanted: int, waits: bool) -> None:
        """SinkUnavailable if there is nobody to bring the store to the epoch, or that takes too long."""
        oldest, there = self.decisions.epochs()[0], f"has epoch {has}" if has >= 0 else f"has nothing of flow {self.plan.flow}"
        filled = f"fill it anew: penstock sink rebuild FLOW.py {self.output.id}"
        if has + 1 < oldest:
            raise SinkLost(f"{store} {there}, and the epochs up to {oldest - 1} are no longer kept", hint=filled)
        if not waits:
            raise SinkUnavailable(
                f"{store} {there}, and the flow is at {wanted}",
                hint=f"the flow gives it what it lacks while it runs (penstock sink list); or {filled}",
            )

    def _last_with_rows(self, until: int) -> int:
        """The last epoch that had rows for the sink: those without leave a store as it is, and its marker too."""
        kept = [epoch for epoch in self.decisions.epochs() if epoch <= until]
        written = [epoch for epoch in kept if any(staged.sink == self.output.id for staged in self.decisions.read(epoch).staged)]
        return max(written, default=min(kept, default=0) - 1)

    def _compared_in(self, transaction: Transaction, expected: Expected, has: int) -> Comparison:
        assert isinstance(transaction, Legible)
        expected.forward(self.decisions, self.output, max(has, expected.epoch))
        self.progress("comparing", 0, 0)
        rows = transaction.rows() if transaction.one_moment else iter(list(transaction.rows()))
        touched = None if transaction.one_moment else self._touched(expected, has, self._epoch_of(transaction))
        definition = self.place.definition
        comparison = Comparison(expected.content, definition.holds == "first", definition.forgets, touched, at=has)
        comparison.run(rows)
        return comparison

    def _touched(self, expected: Expected, after: int, until: int) -> pa.Array:
        """The keys that epochs behind one have written, up to another."""
        changes = [
            staged_changes(self.decisions, self.output, expected.content, epoch)
            for epoch in self.decisions.epochs()
            if after < epoch <= until
        ]
        keys = [keys_of(rows, expected.content.spec.key) for each in changes for rows in (each.put, each.gone) if rows.num_rows]
        return pa.concat_arrays([pa.array([], pa.binary()), *keys])

    def _written(self, store: Store, expected: Expected, comparison: Comparison, result: InStep) -> InStep:
        changes = comparison.changes
        with store.transaction() as transaction:
            note = transaction.note()
            if self._incarnation != expected.incarnation:
                raise Mismatch(f"flow {self.plan.flow} was reset meanwhile; nothing was written")
            has = self._epoch_in(note)
            if has != comparison.at and not named(expected):
                raise SinkUnavailable(f"{store.called} was written by its flow meanwhile", hint="try again")
            if note and note.refused and has >= 0:  # as a start does it: once for each epoch, and then this marker replaces theirs
                self._refuse(note.marker, rows_refused(note.refused))
            touched = self._touched(expected, expected.epoch, has)
            put, gone = (_without(rows, touched, expected.content.spec.key) for rows in (changes.put, changes.gone))
            changes = Changes(put, gone)
            epoch = max(has, expected.epoch)
            if isinstance(transaction, Versioned):
                transaction.mending()
            refusals = transaction.write(replace(_timed(changes, SystemClock().now()), epoch=epoch))
            marker = Marker(self._incarnation, self._generation(note), epoch)
            refused = self._first_refused(store, expected, changes.put, refusals, has)
            transaction.keep(Note(marker, refused))
        if refused:
            self._refuse(marker, rows_refused(refused))
        written = changes.put.num_rows + changes.gone.num_rows - len(refusals)
        return replace(result, epoch=epoch, written=written, refused=len(refusals))

    def _first_refused(self, store: Store, expected: Expected, rows: pa.Table, refusals: Sequence[Refusal], has: int) -> bytes:
        """Of the rows that the store refuses those of epochs it was not given yet, which nobody delivers any more."""
        given = last_told(self.decisions.storage, self.output.id).get("delivered", -1)
        new = self._touched(expected, max(has, given), expected.epoch)
        keys = keys_of(rows, expected.content.spec.key) if refusals and len(new) else None
        found = [each for each in refusals if keys is not None and pc.is_in(keys[each.row], new).as_py()]
        if found and self.place.definition.on_error == "stop":
            raise refusing(store.called, rows.select(expected.content.spec.schema.names), found)
        return kept(with_reasons(rows, found)) if found else b""

    @property
    def _refuse(self) -> RefusedRows:
        return RefusedRows(self.plan.flow, self.output.id, self.runtime.log)

    @property
    def _incarnation(self) -> str:
        return self.decisions.incarnation("")[0]

    def _generation(self, note: Note | None) -> int:
        """That of the last start: it is not fenced off, and those before it are."""
        mine = note.marker.generation if note and note.marker.incarnation == self._incarnation else 0
        return max([mine, *(int(name) for name in self.decisions.storage.list("generations") if name.isdigit())])

    def _epoch_of(self, transaction: Transaction) -> int:
        return self._epoch_in(transaction.note())

    def _epoch_in(self, note: Note | None) -> int:
        """-1 also where the store belongs to another life of the flow."""
        return note.marker.epoch if note and note.marker.incarnation == self._incarnation else -1


def sink_named(plan: Plan, name: str) -> Output:
    """By its whole name or by what it writes; of a store and others that write under one name it is the store."""
    whole = [output for output in plan.outputs if output.id == name]
    named = [output for output in plan.outputs if output.definition.target == name]
    found = whole or [output for output in named if output in stores_of(plan)] or named
    if len(found) > 1:
        raise BadInput(f"several sinks of flow {plan.flow} write {name}", hint=f"name one: {', '.join(o.id for o in found)}")
    if not found:
        there = ", ".join(output.id for output in plan.outputs) or "none"
        raise NotFound(f"flow {plan.flow} has no sink {name!r}", f"its sinks: {there}")
    return found[0]


def places_of(output: Output) -> list[StorePlace]:
    """The stores that a sink writes to; BadInput if it is none."""
    definition = output.definition
    if isinstance(definition, TwoPhaseDefinition):
        return [StorePlace(each, marker_name(output.name, each)) for each in definition.participants]
    if isinstance(definition, StoreDefinition):
        return [StorePlace(definition, output.name)]
    raise BadInput(
        f"{output.id} is no store",
        "topics and views are Penstock's own, and actions keep no rows",
        hint="penstock sink list shows the sinks of a flow",
    )


def stores_of(plan: Plan) -> list[Output]:
    return [output for output in plan.outputs if isinstance(output.definition, StoreDefinition | TwoPhaseDefinition)]


def named(expected: Expected) -> bool:
    """Whether a key or a position tells rows apart, so that writing one twice is writing it once."""
    return bool(key_of(expected.content.spec))


def _without(rows: pa.Table, touched: pa.Array, key: tuple[str, ...]) -> pa.Table:
    if not len(touched) or not rows.num_rows:
        return rows
    return rows.filter(pc.invert(pc.is_in(keys_of(rows, key), touched)))


def _timed(changes: Changes, now: int) -> Changes:
    """Rows of the store that go do so now; nobody knows when they should have gone."""
    at = changes.gone.column_names.index(TIME)
    return replace(changes, gone=changes.gone.set_column(at, TIME, filled(changes.gone[TIME], now)))
