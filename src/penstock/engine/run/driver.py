"""One flow's driver: takes the flow, recovers, and runs epoch after epoch. The loops around it are in loop.py."""

import math
import time
import uuid
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Any

from penstock.capture.commits import journal_name
from penstock.core.time import FOREVER
from penstock.engine.diagnose.describe import describe, holders
from penstock.engine.execute.failing_share import FailingShare
from penstock.engine.execute.job import Result
from penstock.engine.execute.program import lower
from penstock.engine.run.context import FlowContext
from penstock.engine.run.epoch.captures import Captures
from penstock.engine.run.epoch.decide import decision_for
from penstock.engine.run.epoch.decision import Decision, Decisions
from penstock.engine.run.epoch.deliver import LIMIT, Deliverer
from penstock.engine.run.epoch.history import keep_record
from penstock.engine.run.epoch.horizon import horizon
from penstock.engine.run.epoch.open import EpochRequest, Opened, open_epoch
from penstock.engine.run.epoch.report import Report, Stopwatch
from penstock.engine.run.epoch.segments import fitting_state, run_segments
from penstock.engine.run.epoch.sink_status import tell_nobody, telling
from penstock.engine.run.epoch.sweep import Sweeper
from penstock.engine.run.lock import log_address, this_process
from penstock.engine.run.planning import COLUMNS, taken_columns
from penstock.engine.state.refs import RunRef
from penstock.errors import DiskFull, LostRace, Mismatch, NotFound, Passing, PenstockError, Replaced, TornEpoch
from penstock.kernels.port import crossed
from penstock.log.port import Topic
from penstock.plan import Plan
from penstock.plan.meaning import is_of
from penstock.sinks.port import Marker

_TORN = 2  # times that a torn epoch is run again before the run ends
_LOOK = 1.0  # seconds between two looks of an idle driver whether it was replaced


class Driver:
    def __init__(self, plan: Plan, context: FlowContext) -> None:
        self.plan, self.context = plan, context
        self.decisions = Decisions(context.storage, plan.flow)
        self.program = lower(plan, self._topics())
        self.captures = Captures(context.log)
        self.last: Decision | None = None
        self.deliverer = Deliverer((), self.decisions)
        self.replaced = False
        self._lock: AbstractContextManager[bool | None] | None = None
        self._looked = float("-inf")

    def _topics(self) -> dict[str, Topic | None]:
        topics: dict[str, Topic | None] = {}
        for source in self.plan.sources.values():
            try:
                topics[source.topic] = self.context.log.topic(source.topic)
            except NotFound:
                topics[source.topic] = None
        return topics

    @property
    def sources(self) -> dict[str, str]:
        """Source step → topic."""
        return {name: spec.called for name, spec in self.program.sources.items()}

    @property
    def streams(self) -> dict[str, str]:
        """The same without tables: time comes as far as these say."""
        return {name: spec.topic for name, spec in self.program.sources.items() if not spec.versions}

    @property
    def inputs(self) -> dict[str, str]:
        """The same without what is written in the flow itself: these topics can grow."""
        return {name: spec.topic for name, spec in self.program.sources.items() if not spec.static}

    @property
    def watched(self) -> list[str]:
        """The topics whose records are worth an epoch. Of a capture that is its journal: rows count once a transaction is whole."""
        specs = [spec for spec in self.program.sources.values() if not spec.static]
        return sorted({journal_name(spec.capture) if spec.capture else spec.topic for spec in specs})

    def read_to(self) -> dict[tuple[str, int], int]:
        """The next offset that is read of every partition of these topics."""
        sources, places = self.last.sources if self.last else {}, self.captures.read_to()
        for name, topic in self.inputs.items() if sources else ():
            for number, partition in sources[name].partitions.items() if not self.program.sources[name].capture else ():
                places[topic, number] = min(partition.next, places.get((topic, number), partition.next))
        return places

    def due(self) -> float:
        """Seconds until time alone is worth an epoch, as far as that is known: open windows are to be shown."""
        if not self.last or not self.last.rows or not self.program.early:
            return math.inf
        now = self.context.clock.now()
        return min(every - now % every for every in self.program.early.values()) / 1e6

    def start(self) -> None:
        """Takes the flow's lock and the next generation; delivers what is decided and forgets what is not."""
        self._lock = self.context.lock(self.decisions)
        try:
            self._recover()
        except BaseException:
            self.release()
            raise

    def _recover(self) -> None:
        self.decisions.check_whole()
        self.incarnation, _ = self.decisions.incarnation(uuid.uuid4().hex)
        self.generation = self.decisions.generation(this_process() | self._described())
        self.failing = FailingShare()
        self.last = self.decisions.last()
        self._check()
        tell = telling(self.context.storage, self.context.clock) if self.context.threaded else tell_nobody
        targets, messages = self.context.targets(self.program), self.context.messages
        self.deliverer = Deliverer(targets, self.decisions, self.context.threaded, messages, tell)
        self.deliverer.recover(self.incarnation, self.generation, self.last, self.sources)
        self.sweeper = Sweeper(self.context.storage, self.decisions)
        self.sweeper.load()

    def _described(self) -> dict[str, Any]:
        """What can be said of the flow later, without its program."""
        outputs = [
            {"kind": out.kind, "name": out.definition.target, "id": out.id} | out.definition.recorded(self.plan.flow, out.name)
            for out in self.plan.outputs
        ]
        known = {"steps": describe(self.plan), "holders": holders(self.plan), "names": [step.name for step in self.plan.steps]}
        known |= {
            "sources": self.inputs,
            "outputs": outputs,
            "log": log_address(self.context.log),
            COLUMNS: taken_columns(self.plan),
        }
        return known | self._horizon()

    def _horizon(self) -> dict[str, Any]:
        """From when on the flow could go on, where a version has ended its input that did not note it."""
        last = self.decisions.last()
        if last is None or last.horizon or not any(s.used >= FOREVER for s in last.sources.values()):
            return {}
        try:
            return {"horizon": horizon(self.program, self.context.log, last.sources, None)}
        except (KeyError, NotFound):  # the flow was changed, or an input is gone: both are told soon
            return {}

    def _check(self) -> None:
        last = self.last
        if not last:
            return
        if last.incarnation != self.incarnation:
            raise Mismatch(
                f"the decisions of flow {self.plan.flow} belong to another incarnation of it",
                f"the file incarnation says {self.incarnation}, epoch {last.epoch} says {last.incarnation}",
                hint="restore the whole directory from one copy",
            )
        if not is_of(self.plan, last.fingerprint):
            raise Mismatch(
                f"flow {self.plan.flow} has changed since it last ran",
                "its state belongs to the steps as they were",
                hint=f"give the changed flow another name; or start it over: penstock flow reset {self.plan.flow}",
            )

    def open(self, request: EpochRequest) -> Opened:
        if self._has_come():
            self.program = lower(self.plan, self._topics())
        return open_epoch(self.program, self.context.log, self.last, self.context.clock.now(), request, self.captures)

    def _has_come(self) -> bool:
        """Whether a topic that was missing is there now: then the sources are looked at anew."""
        missing = {spec.topic for spec in self.program.sources.values() if not spec.there}
        return bool(missing) and not missing.isdisjoint(self.context.log.topics())

    def worth_it(self, opened: Opened) -> bool:
        """Rows to read, time that has come further, a gap to be written into the books, or a partition first seen: what was used
        without it becomes its mark."""
        if self.last and any(
            source.partitions.keys() - self.last.sources[name].partitions for name, source in opened.sources.items()
        ):
            return True
        if opened.gone:
            return True
        before = self.last.frontiers if self.last else self.program.frontiers(dict.fromkeys(self.program.sources, -(2**62)))
        return opened.rows > 0 or dict(opened.frontiers) != dict(before) or self._early(opened)

    def _early(self, opened: Opened) -> bool:
        """Whether open windows of the last epochs with rows are to be shown now."""
        last, early = self.last, self.program.early
        if not last or not early:
            return False
        return any(crossed((last.clock, opened.clock), every) for every in early.values()) and last.rows > 0

    def epoch(self, request: EpochRequest | None = None) -> Report | None:
        """One epoch, if there is anything to do. A driver that was replaced says so, whatever else it has met with (G10)."""
        try:
            self._refuse_replaced(_LOOK)
            return self._epoch(replace(request or EpochRequest(), accept_gap=self.context.accept_gap))
        except Replaced:
            self.replaced = True
            raise
        except PenstockError as error:
            try:
                self._refuse_replaced()
            except Replaced as replaced:
                self.replaced = True
                raise replaced from error
            raise

    def _epoch(self, request: EpochRequest) -> Report | None:
        """The six steps. Until Step 4 nothing outside depends on the epoch; from then on it is never computed again."""
        context, watch = self.context, Stopwatch()
        context.ready()
        self._deliver_owed()

        # Step 1, Open: which offsets the epoch reads, and how far event time has come.
        opened = self.open(request)
        if not self.worth_it(opened):
            self.deliverer.settle(LIMIT)
            return None
        watch.lap("open")
        context.fail("after_open")

        with self.sweeper.attempt():
            # Step 2, Read, and Step 3, Run: tasks read rows and push them from step to step, into files that nothing names yet.
            state = fitting_state(context, self.program, self.last, opened.epoch)
            result = self._run(opened, state)
            watch.lap("run", result.seconds)
            self.failing.check(self.plan, result.fates, result.samples)
            context.fail("after_run")

            # Step 4, Decide: one file, created exclusively and durably, names them all. That is the commit.
            self.last = decision = self._decide(opened, state, result)
            watch.lap("decide")
        self.sweeper.note(decision)

        with suppress(Passing):  # what a sink cannot take, and what cannot be swept, comes with the next epoch
            # Step 5, Deliver: every sink takes the epoch whole, once.
            self.deliverer.give(decision, self.sources, context.fail, self.generation)
            watch.lap("deliver")

            # Step 6, Sweep: decisions that are no longer kept go, with their files.
            self._refuse_replaced()  # its successor sweeps
            self.sweeper.sweep(decision, self.deliverer.delivered())
            watch.lap("sweep")
        context.publish_offsets(self.program, decision)
        context.fail("after_sweep")
        return self._recorded(Report.of(decision, opened, watch))

    def _deliver_owed(self) -> None:
        """What a sink could not take in an earlier epoch comes first."""
        if self.deliverer.owes():
            self._refuse_replaced()  # a sink is opened anew for it, and made where it is missing
            self.deliverer.again()

    def _run(self, opened: Opened, state: tuple[RunRef, ...]) -> Result:
        """Runs the epoch; one that Spark has torn is run again as if it had never been."""
        for _ in range(_TORN):
            with suppress(TornEpoch), self.sweeper.attempt():
                return run_segments(self.context, self.program, opened, self.last, state)
        return run_segments(self.context, self.program, opened, self.last, state)

    def _decide(self, opened: Opened, state: tuple[RunRef, ...], result: Result) -> Decision:
        """Publishes the decision. An older driver that was paused may have been faster in the last moment: what it decided holds,
        and this one goes on behind it."""
        marker = Marker(self.incarnation, self.generation, opened.epoch)
        decision = decision_for(self.context, self.program, marker, opened, self.last, state, result)
        self.context.fail("before_decide")
        try:
            self.decisions.publish(decision)
        except LostRace:
            winner = self.decisions.read(opened.epoch)
            if winner.generation >= self.generation or not is_of(self.plan, winner.fingerprint):
                raise
            return winner
        self.failing.decided(result.fates)
        self.context.fail("after_decide")
        return decision

    def _recorded(self, report: Report) -> Report:
        with suppress(DiskFull):
            keep_record(self.context.storage, report.decision, report.seconds, report.steps, report.behind)
        return report

    def _refuse_replaced(self, every: float = 0.0) -> None:
        """Raises Replaced if a later start has taken the flow, or it was reset. every: at most once in so many seconds."""
        if time.monotonic() - self._looked >= every:
            self.decisions.refuse_reset(self.incarnation)
            self.decisions.refuse_replaced(self.generation)
            self._looked = time.monotonic()

    def stop(self) -> list[str]:
        """What is decided is delivered, and the flow is free again. A line for each sink that is away: what it did not get comes
        with the next start."""
        try:
            return [] if self.replaced else self.deliverer.finish()
        finally:
            self.release()

    def release(self) -> None:
        if self.last and self._lock and not self.replaced:
            self.context.publish_offsets(self.program, self.last, now=True)
        self.deliverer.close()
        if self._lock:
            self._lock.__exit__(None, None, None)
            self._lock = None
