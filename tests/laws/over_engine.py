"""Runs cases on the real engine, in this process: log, epochs, decisions, state files, delivery, recovery.

What a case says of epochs is taken over: how much is read, when an attempt is lost, how many buckets there are. Marks are the
engine's own; they are read back from its decisions, and the specification gets the same ones.
"""

import random
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from penstock import Flow, View
from penstock.core.columns import EVENT_TIME, POSITION, TIME
from penstock.core.schema import Schema
from penstock.core.time import FixedClock, micros
from penstock.engine.run.context import FlowContext
from penstock.engine.run.driver import Driver
from penstock.engine.run.epoch.open import EpochRequest
from penstock.engine.run.outputs import targets
from penstock.flow.resolve import resolve
from penstock.flow.sql.analyzer import NoAnalyzer
from penstock.flow.stream import Stream
from penstock.log.memory import MemoryLog
from penstock.log.port import End, Topic, TopicSpec
from penstock.plan import SinkDefinition
from penstock.sinks.port import SinkContext
from penstock.sinks.topic import TopicSink
from penstock.storage.local import LocalStorage

from .blind import AFTER_A_MARK, BlindLog
from .cases import Case, EpochCut, Node
from .engine_flows import built, value
from .law import Outcome, Output, Shown, encoded
from .reference.log import EngineMark, Entry, Mark, Source
from .reference.steps import Alert, AlertTable, Count, Enrich, Running, Session, Sliding, Slim, Told, Union, Window

POINTS = ("after_open", "after_run", "before_decide", "after_decide", "after_sweep", "view.rows", "topic.appended")
TYPED = "key string, val long, at timestamp"
VERSIONS = f"{TYPED}, op string"
Updating = Window | Session | Running | Enrich | AlertTable


class Crash(BaseException):
    """The process is gone."""


@dataclass(frozen=True)
class Outbox(SinkDefinition):
    """What an action would be given, in a topic; nobody sends it."""

    name: str

    kind: ClassVar[str] = "outbox"
    takes_updates: ClassVar[bool] = False
    ordered: ClassVar[bool] = True

    @property
    def target(self) -> str:
        return self.name

    def build(self, context: SinkContext) -> TopicSink:
        return TopicSink(context.spec, context.log, self.name, 1, (), context.storage, context.fail)


class Partly:
    """A topic of which only some partitions have been found yet."""

    def __init__(self, topic: Topic, seen: set[int]) -> None:
        self._topic, self._seen = topic, seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._topic, name)

    def ends(self) -> dict[int, End]:
        return {p: end for p, end in self._topic.ends().items() if p in self._seen}


class PartlySeenLog:
    def __init__(self, log: Any) -> None:
        self.log = log
        self.seen: dict[str, set[int]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)

    def topic(self, name: str) -> Any:
        topic = self.log.topic(name)
        return Partly(topic, self.seen[name]) if name in self.seen else topic


@dataclass(frozen=True)
class OverEngine:
    """An implementation of cases. `headers`: whether frame headers know the stream's time. `delay`: how far time stays behind
    the clock where a stream is read to its end; None: it does not follow the clock."""

    headers: bool = True
    blind: bool = False  # the log has no headers at all, gaps in its offsets, and marks with offsets of their own
    crashes: bool = True
    delay: int | None = None
    driver: type[Driver] = Driver  # may be replaced, to see that a wrong one is caught

    def __call__(self, case: Case) -> Outcome:
        directory = Path(tempfile.mkdtemp(prefix="penstock-law-"))
        try:
            return Run(self, case, directory).outcome()
        finally:
            shutil.rmtree(directory)


def prepared(case: Case, marks: int = 0) -> Case:
    """The case as a log can hold it: a mark takes that many offsets, and one that is refused at the door is left out."""
    return replace(case, sources=[_prepared(s, marks) for s in case.sources])


def _prepared(source: Source, marks: int) -> Source:
    partitions: list[list[Entry | Mark]] = []
    for p, entries in enumerate(source.partitions):
        kept: list[Entry | Mark] = []
        offset = appended = 0
        for e in entries:
            if isinstance(e, Mark):
                if appended + source.future >= e.T:
                    kept.append(e)
                    offset += marks
                continue
            kept.append(e._replace(pos=(source.name, p, offset)))
            offset, appended = offset + 1, e.app
        partitions.append(kept)
    return replace(source, partitions=partitions)


class Run:
    def __init__(self, how: OverEngine, case: Case, directory: Path) -> None:
        self.how, self.case, self.directory = how, case, directory
        self.rng = random.Random(f"engine {case.name} {case.seed}")
        self.clock = FixedClock(0)
        self.log = PartlySeenLog(BlindLog(self.clock) if how.blind else MemoryLog(self.clock))
        for source in case.sources:
            self._fill(source)
        self.flows = [One(self, i, nodes) for i, nodes in enumerate(case.flows)]

    def _fill(self, source: Source) -> None:
        time = "at" if self.how.headers else None
        spec = TopicSpec(source.name, len(source.partitions), _schema(source), time)
        topic = self.log.create(replace(spec, future=_span(source.future)))
        self.log.seen[source.name] = set()
        for p, entries in enumerate(source.partitions):
            self.clock.set(0)
            for group in self._grouped(entries):
                if isinstance(group, Mark):
                    topic.append(p, None, mark=group.T)
                else:
                    self.clock.set(max(self.clock.now(), group[0].app))
                    topic.append(p, _batch(group, source))

    def _grouped(self, entries: Sequence[Entry | Mark]) -> list[Mark | list[Entry]]:
        """Frames: rows of one append time may share one."""
        out: list[Mark | list[Entry]] = []
        for e in entries:
            if isinstance(e, Mark):
                out.append(e)
            elif out and isinstance(out[-1], list) and out[-1][0].app == e.app and self.rng.random() < 0.7:
                out[-1].append(e)
            else:
                out.append([e])
        return out

    def outcome(self) -> Outcome:
        for cut in self.case.cuts:
            self.flows[cut.flow].epoch(cut)
        for number, flow in enumerate(self.flows):
            for source in self.case.sources if number == 0 else ():
                self.log.seen[source.name] = set(range(len(source.partitions)))
            flow.until_quiet()
        outcome = Outcome()
        for flow in self.flows:
            flow.tell(outcome)
        return outcome


class One:
    """One flow under a driver that comes and goes."""

    def __init__(self, run: Run, number: int, nodes: list[Node]) -> None:
        self.run, self.number, self.nodes = run, number, nodes
        self.marks: dict[str, list[EngineMark]] = {}
        self.crash_at: str | None = None
        self.buckets = 1
        flow = self._build()
        self.plan = resolve(flow, NoAnalyzer())
        self.storage = LocalStorage(str(run.directory / f"flow{number}"), sync=False)
        self.driver: Driver | None = None
        self.noted = -1

    def _build(self) -> Flow:
        flow = Flow(f"flow{self.number}")
        streams: dict[str, Stream] = {}
        if self.number == 0:
            for s in self.run.case.sources:
                if s.table:
                    streams[s.name] = flow.table(s.name, VERSIONS, key="key", time="at", op="op").select("key", "val")
                    continue
                delay = None if self.run.how.delay is None else f"{self.run.how.delay} us"
                streams[s.name] = flow.stream(s.name, TYPED, time="at", lateness=f"{s.lateness} us", idle="5 us", delay=delay)
        else:
            streams["topic"] = flow.stream(f"out-0-{self.run.case.flows[0][-1].name}", "key string, val long")
        for node in self.nodes:
            streams[node.name] = built(node, [streams[i] for i in node.inputs])
            partitions = self.run.case.topic_partitions if node is self.nodes[-1] else 1
            if isinstance(node.step, Updating) and node.step.updating:
                streams[node.name].view(f"out-{self.number}-{node.name}")
            elif isinstance(node.step, Told):
                streams[node.name].sink(Outbox(f"out-{self.number}-{node.name}"))
            else:
                streams[node.name].to(f"out-{self.number}-{node.name}", key="key", partitions=partitions)
            if isinstance(node.step, Window | Session | Sliding | Count | Alert) and node.step.late != "ignore":
                streams[f"{node.name}.late"] = late = streams[node.name].late
                late.to(f"late-{self.number}-{node.name}")
        return flow

    def start(self) -> Driver:
        if self.driver is None:
            make = targets(self.run.log, self.storage, self.run.directory / "views", self._fail)
            context = FlowContext(self.run.log, self.storage, make, buckets=self.buckets, clock=self.run.clock, fail=self._fail)
            self.driver = self.run.how.driver(self.plan, context)
            self.driver.start()
        return self.driver

    def _fail(self, point: str) -> None:
        if point == self.crash_at:
            self.crash_at = None
            raise Crash

    def epoch(self, cut: EpochCut) -> None:
        self.run.clock.set(self.run.clock.now() + self.run.rng.choice((0, 1, 3, 10)))
        if cut.buckets != self.buckets:
            self.stop()
            self.buckets = cut.buckets
        for name, c in cut.sources.items() if self.number == 0 else ():
            self.run.log.seen[name] |= c.see
        if cut.lost and self.run.how.crashes:
            self.crash_at = self.run.rng.choice(POINTS)
            try:
                self._try(cut.lost)
            except Crash:
                self.note()
                self.stop()
            self.crash_at = None
        self._try(cut.sources)

    def _try(self, cuts: Mapping[str, Any]) -> None:
        def rows(source: str, partition: int, there: int) -> int:
            chosen = next(iter(cuts.values())) if self.number else cuts[source]
            return int(min(there, chosen.counts[partition]))

        self.start().epoch(EpochRequest(cut=rows, tick=0))
        self.note()

    def until_quiet(self) -> None:
        while self.start().epoch(EpochRequest(tick=0)):
            self.note()

    def note(self) -> None:
        """The marks of every decision, before it is swept."""
        for epoch in self.start().decisions.epochs() if self.driver else ():
            if epoch > self.noted:
                decision = self.driver.decisions.read(epoch)  # type: ignore[union-attr]
                for m in decision.marks:
                    self.marks.setdefault(m.source, []).append(EngineMark(m.partition, m.offset, m.time))
                self.noted = epoch

    def stop(self) -> None:
        if self.driver:
            self.driver.release()
            self.driver = None

    def tell(self, outcome: Outcome) -> None:
        last = self.start().last
        fates = last.fates if last else {}
        for source in self.run.case.sources if self.number == 0 else ():
            outcome.implausible[source.name] = fates.get(source.name, {}).get("implausible", 0)
            wide = AFTER_A_MARK if self.run.how.blind else 0
            outcome.marks[source.name] = [_by_entry(m, source, wide) for m in self.marks.get(source.name, [])]
        for node in self.nodes:
            out = outcome.nodes[f"{self.number}/{node.name}"] = Output()
            if not isinstance(node.step, Slim | Union):
                counts = Counter(fates.get(node.name, {}))
                del counts["in"]
                out.fates = counts
            name = f"out-{self.number}-{node.name}"
            if isinstance(node.step, Updating) and node.step.updating:
                out.rows = self._viewed(name, node)
            else:
                out.rows = [(r[EVENT_TIME], r["key"], value(node, r), r[POSITION]) for r in self._written(name)]
            out.late = [r[POSITION] for r in self._late(node)]
        self.stop()

    def _viewed(self, name: str, node: Node) -> list[Shown]:
        """The rows of a view, with the time and the position that each had when it was sent."""
        path = self.run.directory / "views"
        if not (path / f"{name}.db").exists():
            return []
        if isinstance(node.step, Enrich):
            return self._named_by_position(path / f"{name}.db", node)
        with View(path, name) as view:
            rows = view.rows().to_pylist()
        over = node.step.over if isinstance(node.step, AlertTable) else node.step
        if isinstance(over, Running):
            return [(micros(r["newest"]), r["key"], value(node, r), encoded(("window", r["key"], 0))) for r in rows]
        ends = [micros(r["window_end"]) for r in rows]
        starts = [0 if isinstance(node.step, AlertTable) else micros(r["window_start"]) for r in rows]
        places = [encoded(("window", r["key"], start)) for r, start in zip(rows, starts, strict=True)]
        return [(end - 1, r["key"], value(node, r), place) for r, end, place in zip(rows, ends, places, strict=True)]

    def _named_by_position(self, path: Path, node: Node) -> list[Shown]:
        with closing(sqlite3.connect(path)) as database:
            database.row_factory = sqlite3.Row
            rows = [dict(row) for row in database.execute("select * from current")]
        return [(r[TIME], r["key"], value(node, r), r[POSITION]) for r in rows]

    def _late(self, node: Node) -> list[dict[str, Any]]:
        """The rows a node diverted: written out by a window, in the flow's own late topic from a join."""
        name = f"late-{self.number}-{node.name}"
        if name in self.run.log.topics():
            return self._written(name)
        letters = f"flow{self.number}.late"
        if letters in self.run.log.topics():
            return [r for r in self._written(letters) if r["step"] == node.name]
        return []

    def _written(self, topic: str) -> list[dict[str, Any]]:
        found = self.run.log.topic(topic)
        rows = [row for p in found.ends() for chunk in found.read(p) for row in chunk.rows.to_pylist()]
        for row in rows:
            row[EVENT_TIME] = micros(row[EVENT_TIME])
        return rows


def _by_entry(mark: EngineMark, source: Source, wide: int) -> EngineMark:
    """An offset as a place among entries: a mark of the engine stands before the first entry of that offset or a later one."""
    offset = 0
    for place, entry in enumerate(source.partitions[mark.partition]):
        if offset >= mark.offset and (wide or isinstance(entry, Entry)):
            return mark._replace(offset=place)
        offset += 1 if isinstance(entry, Entry) else wide
    return mark._replace(offset=len(source.partitions[mark.partition]))


def _schema(source: Source) -> Schema:
    return Schema.of(VERSIONS if source.table else TYPED)


def _span(us: int) -> timedelta:
    return timedelta(microseconds=us) if us < 2**60 else timedelta(days=300_000)


def _batch(entries: list[Entry], source: Source) -> pa.RecordBatch:
    columns = [[e.key for e in entries], [e.val for e in entries], [e.t for e in entries]]
    arrays = [pa.array(c, t) for c, t in zip(columns, (pa.string(), pa.int64(), pa.int64()), strict=True)]
    arrays[2] = arrays[2].cast(pa.timestamp("us", tz="UTC"))
    if source.table:
        arrays.append(pa.array(["delete" if e.val is None else "upsert" for e in entries]))
    return pa.RecordBatch.from_arrays(arrays, schema=_schema(source).arrow)
