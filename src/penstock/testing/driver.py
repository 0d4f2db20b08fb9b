"""A whole flow inside a unit test: no broker, no waiting, with time and crashes in the test's hands.

with flow.test() as t:
    t.send("orders", {"order_id": "a", "amount": 5.0, "at": "2024-01-15T10:30:00"})
    t.epoch()
    t.crash("after_decide")
    t.end()
    assert t.rows("sales_per_minute") == [...]
"""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from penstock.core.columns import OP
from penstock.core.position import Position
from penstock.core.python_rows import python_rows
from penstock.core.schema import Schema
from penstock.core.time import FOREVER, duration, instant, micros, moment
from penstock.engine.flows.reopening import reopen
from penstock.engine.lookup import rows as lookups
from penstock.engine.run.context import FlowContext
from penstock.engine.run.driver import Driver
from penstock.engine.run.epoch.decision import Decisions
from penstock.engine.run.epoch.open import Cut, EpochRequest
from penstock.engine.run.epoch.report import Report
from penstock.engine.run.letters import letter_topic
from penstock.engine.run.loop import ends
from penstock.engine.run.outputs import targets
from penstock.engine.state import runs
from penstock.errors import NotFound, PenstockError
from penstock.flow.graph import FlowGraph
from penstock.flow.resolve import resolve
from penstock.log.intake.deletes import DELETE
from penstock.log.intake.stored_rows import deletes_of
from penstock.log.memory import MemoryLog
from penstock.log.port import Topic, TopicSpec
from penstock.log.producer import Producer
from penstock.plan import MapArrow, Plan, Source, Step
from penstock.storage.local import LocalStorage
from penstock.testing.rowwise import checked
from penstock.views.view import View

CRASH_POINTS = ("after_open", "after_run", "before_decide", "after_decide", "after_sweep")


class Crashed(BaseException):
    """What a planned crash raises, out of reach of `except Exception`."""


class TestClock:
    """A clock that follows the newest event sent, until the test turns it."""

    __test__ = False

    def __init__(self) -> None:
        self._now, self._turned = micros(instant("2024-01-01T00:00:00Z")), False

    def now(self) -> int:
        return self._now

    def follow(self, time: int) -> None:
        if not self._turned:
            self._now = max(self._now, time)

    def set(self, time: str | datetime) -> None:
        """Turns the clock to a time; from then on only the test moves it."""
        self._now, self._turned = micros(instant(time)), True

    def advance(self, by: str | timedelta) -> None:
        self._now, self._turned = self._now + micros(duration(by)), True


class FlowTest:
    """One flow under test. Every promise of a real run holds: epochs, decisions, delivery, recovery; only the log is in memory."""

    __test__ = False
    drives: type[Driver] = Driver  # a subclass of FlowTest may run its flow with another one

    def __init__(self, flow: FlowGraph, *, buckets: int = 2, analyzer: Any = None) -> None:
        self.flow, self.buckets = flow, buckets
        self.clock = TestClock()
        self.log = MemoryLog(self.clock)
        self._analyzer = analyzer or _LazySpark()
        self.directory = Path(tempfile.mkdtemp(prefix="penstock-test-"))  # "flow" is what the flow keeps, "views" are its views
        self._producers: dict[str, Producer] = {}
        self._crash_at: str | None = None
        self._passed: list[str] = []
        self.reports: list[Report] = []
        self.plan: Plan = _with_checks(resolve(flow, self._analyzer))
        self._driver: Driver | None = None

    def __enter__(self) -> "FlowTest":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    # what comes in

    def topic(self, name: str, partitions: int = 1, **settings: Any) -> Topic:
        """Makes a topic with several partitions, or other settings, before the first row is sent."""
        step, source = self._source(name)
        schema = Schema(pa.schema([f for f in step.schema if f.name not in source.made]))
        spec = TopicSpec(name, partitions=partitions, schema=schema, time=source.time)
        if source.versions:
            envelopes = source.versions.form == "debezium"
            spec = replace(spec, key=",".join(source.versions.key))
            spec = replace(spec, schema=None, time=None, key=None) if envelopes else spec
        return self.log.create(replace(spec, **settings))

    def send(
        self, topic: str, *rows: Mapping[str, Any], partition: int | None = None, at: str | datetime | None = None
    ) -> list[Position]:
        """Appends rows to a topic, as one frame per partition; `at` is their event time where no column says it."""
        producer = self._producer(topic)
        spec = self.log.topic(topic).spec
        for row in rows:
            when = at if at is not None else row.get(spec.time) if spec.time else self._received(topic, row)
            if isinstance(when, (str, datetime)):
                self.clock.follow(micros(instant(when)))
        receipts = [producer.send(row, partition=partition, time=at) for row in rows]
        producer.flush()
        return [receipt.position for receipt in receipts if receipt.position]

    def delete(
        self,
        topic: str,
        *keys: Mapping[str, Any],
        partition: int | None = None,
        at: str | datetime | None = None,
        **key: Any,
    ) -> list[Position]:
        """Says that rows of a table are gone: `t.delete("users", user_id=1)`, or several keys as dicts; `at` is when."""
        producer = self._producer(topic)
        if at is not None:
            self.clock.follow(micros(instant(at)))
        receipts = [producer.delete(fields, partition=partition, time=at) for fields in (*keys, *([key] if key else []))]
        producer.flush()
        return [receipt.position for receipt in receipts if receipt.position]

    def _received(self, topic: str, row: Mapping[str, Any]) -> Any:
        """When a row came in: as a column says by which the clocks of devices are set right, or as an envelope does."""
        source = self._source(topic)[1]
        if source.clock:
            return row.get(source.clock.received or "")
        return _committed(row) if source.versions else None

    def mark(self, topic: str, time: str | datetime | None = None, partition: int | None = None) -> None:
        """A producer's mark: rows from here on are judged with a watermark of at least `time` (None: the end of input)."""
        when = FOREVER if time is None else instant(time)
        if isinstance(when, datetime):
            self.clock.follow(micros(when))
        self._producer(topic).mark(when, partition=partition)

    # what happens

    def epoch(self, cut: Cut | int | None = None) -> Report | None:
        """One epoch over what is there. cut: at most this many rows of each partition, also within a frame; or a function of
        (source, partition, rows there)."""
        chosen: Cut | None = (lambda s, p, n: min(n, cut)) if isinstance(cut, int) else cut
        return self._epoch(EpochRequest(cut=chosen))

    def catch_up(self) -> None:
        """Epochs until nothing is left to read and time comes no further."""
        self._until_quiet(lambda: EpochRequest(stops=ends(self.driver)))

    def end(self) -> None:
        """Reads everything, then marks every input +∞: all that is open closes."""
        self.catch_up()
        self._until_quiet(lambda: EpochRequest(end=True))

    def crash(self, point: str, cut: Cut | int | None = None) -> None:
        """Runs one epoch, dies at the named point, and starts again as after a crash.

        Points: after_open, after_run, before_decide, after_decide, after_deliver:<sink> (view.NAME, topic.NAME), after_sweep,
        and those of the sinks."""
        self.die(point, cut)
        self.restart()

    def die(self, point: str, cut: Cut | int | None = None) -> None:
        """Runs one epoch and dies at the named point, as `crash` does, but does not start again yet."""
        self._crash_at, self._passed = point, []
        try:
            self.epoch(cut)
        except Crashed:
            pass
        else:
            if self._crash_at is not None:
                self._crash_at = None
                passed = ", ".join(dict.fromkeys(self._passed)) or "none: there was nothing to do"
                what = f"the epoch never came to the point {point!r}"
                raise PenstockError(what, f"points it came by: {passed}", hint="send rows first, or check the point's name")
        self.stop()

    def restart(self, buckets: int | None = None) -> None:
        """Forgets everything in memory and starts from what is on disk; buckets: with another number of state buckets."""
        self.buckets = buckets or self.buckets
        self.stop()
        _ = self.driver

    def stop(self) -> None:
        """Lets go of the flow and forgets everything in memory; what is asked next starts it again."""
        self._crash_at = None
        lookups.forget()
        runs.forget()
        if self._driver:
            self._driver.release()
            self._driver = None

    def reopen(self) -> None:
        """After `end`: lets the flow go on behind all that the end has closed, as `penstock flow reopen` does."""
        storage = self.driver.context.storage
        self.stop()
        reopen(Decisions(storage, self.flow.name))
        self.restart()

    # what can be seen

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of a view, or of a topic that the flow writes (also "late" and "dead"), as dicts. A topic's deletes are its key
        and `"__op": "delete"`."""
        _ = self.driver
        view = self.directory / "views" / f"{name}.db"
        if view.exists():
            with View(view.parent, name) as opened:
                return python_rows(opened.rows(), f"view {name}")
        topic = letter_topic(self.flow.name, name) if name in ("late", "dead") else name
        if name in ("late", "dead") and topic not in self.log.topics():
            return []
        if topic not in self.log.topics():
            there = ", ".join(f"{out.kind} {out.name}" for out in self.plan.outputs)
            raise NotFound(f"flow {self.flow.name} writes nothing called {name!r}", f"it writes: {there}, late, dead")
        return self._topic_rows(self.log.topic(topic))

    def fates(self, step: str | None = None) -> dict[str, Any]:
        """The books: per step (or of one step), how many rows met which fate."""
        last = self.driver.last
        books = {name: dict(counts) for name, counts in last.fates.items()} if last else {}
        if step not in books:
            self._step(step)
        return books if step is None else books.get(step, {})

    def frontier(self, step: str) -> int:
        """F out of a step, as the last epoch used it (microseconds)."""
        self._step(step)
        last = self.driver.last
        return last.frontiers[step] if last else -(2**62)

    def state(self, step: str) -> pa.Table | None:
        """What a keyed step has not yet answered (open windows)."""
        from penstock.engine.diagnose.inspect import open_rows_of

        self._step(step)
        return open_rows_of(self.driver.program, self.driver.context.storage, self.driver.last, step)

    @property
    def driver(self) -> Driver:
        if self._driver is None:
            self._ensure_topics()
            storage = LocalStorage(str(self.directory / "flow"), sync=False)
            make = targets(self.log, storage, self.directory / "views", self._fail)
            sql = getattr(self._analyzer, "sql", None)
            context = FlowContext(self.log, storage, make, buckets=self.buckets, clock=self.clock, fail=self._fail, sql=sql)
            driver = self.drives(self.plan, context)
            driver.start()
            self._driver = driver
        return self._driver

    def _fail(self, point: str) -> None:
        self._passed.append(point)
        if point == self._crash_at:
            self._crash_at = None
            raise Crashed(point)

    def _epoch(self, request: EpochRequest) -> Report | None:
        report = self.driver.epoch(request)
        if report:
            self.reports.append(report)
        return report

    def _until_quiet(self, request: Callable[[], EpochRequest]) -> None:
        while self._epoch(request()):
            pass

    def _step(self, name: str | None) -> None:
        """A name that no step has is a mistake in the test, not an empty answer."""
        steps = [step.name for step in self.plan.steps]
        if name is not None and name not in steps:
            raise NotFound(f"flow {self.flow.name} has no step {name!r}", f"its steps: {', '.join(steps)}")

    def _sources(self) -> dict[str, tuple[Step, Source]]:
        """The sources that read topics, by topic."""
        return {s.topic: (self.plan.step(name), s) for name, s in self.plan.sources.items() if not s.static}

    def _source(self, topic: str) -> tuple[Step, Source]:
        sources = self._sources()
        if topic not in sources:
            raise NotFound(f"flow {self.flow.name} reads no topic {topic!r}", f"it reads: {', '.join(sorted(sources))}")
        return sources[topic]

    def _ensure_topics(self) -> None:
        for topic in self._sources().keys() - self.log.topics():
            self.topic(topic)

    def _producer(self, topic: str) -> Producer:
        self._source(topic)
        if topic not in self._producers:
            if topic not in self.log.topics():
                self.topic(topic)
            self._producers[topic] = Producer(self.log.topic(topic), batch_rows=1_000_000, linger="1 day")
        return self._producers[topic]

    def _topic_rows(self, topic: Topic) -> list[dict[str, Any]]:
        schema = topic.spec.schema
        names: Sequence[str] = schema.names if schema else ["value"]
        return [row for p in topic.ends() for chunk in topic.read(p) for row in _rows(chunk.rows, names)]


def _rows(batch: pa.RecordBatch, names: Sequence[str]) -> Iterable[dict[str, Any]]:
    gone = deletes_of(batch, raw=False)  # a flow writes typed topics
    for i, row in enumerate(python_rows(batch.select(list(names)), "a topic")):
        if gone is not None and gone[i]:
            row = {name: value for name, value in row.items() if value is not None} | {OP: DELETE}
        yield row


def _committed(row: Mapping[str, Any]) -> datetime | None:
    """When a database took a change, as Debezium tells it."""
    envelope = row.get("payload", row)
    source = envelope.get("source") if isinstance(envelope, Mapping) else None
    known = source.get("ts_ms") if isinstance(source, Mapping) else None
    return moment(known * 1000) if isinstance(known, int) else None


def _with_checks(plan: Plan) -> Plan:
    """map_arrow must be row-wise: under test its batches are cut in two and the results compared."""
    steps = [replace(s, node=MapArrow(checked(s.node.function, s))) if isinstance(s.node, MapArrow) else s for s in plan.steps]
    return replace(plan, steps=tuple(steps))


class _LazySpark:
    """Starts Spark only for an expression that nothing else may evaluate."""

    def __init__(self) -> None:
        self._session: Any = None
        self._steps: Any = None

    @property
    def session(self) -> Any:
        if self._session is None:
            from penstock.engine.spark.session import start_session

            self._session = start_session("penstock-test")
        return self._session

    def type_of(self, sql: str, schema: Any) -> Any:
        from penstock.engine.spark.analyze import SparkAnalyzer

        return SparkAnalyzer(self.session).type_of(sql, schema)

    def sql(self, job: Any, result: Any) -> Any:
        from penstock.engine.execute.sql import SqlSteps

        if self._steps is None:
            self._steps = SqlSteps(self.session)
        return self._steps(job, result)
