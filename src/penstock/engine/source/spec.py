"""A stream or a table over a topic, as the engine and its tasks need to know it."""

from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.core.schema import Schema, type_text
from penstock.core.time import FOREVER, micros
from penstock.engine.source.debezium import FIELDS
from penstock.engine.source.static import StaticTopic, located
from penstock.errors import BadFlow
from penstock.kernels.clocks import Rule
from penstock.log.intake.rows_in import key_columns
from penstock.log.port import Log, Topic, TopicSpec
from penstock.plan import ClockFix, Source, Versions


@dataclass(frozen=True)
class ClockSpec:
    """How the clocks of a stream's devices are set right."""

    fix: ClockFix
    rule: Rule

    @classmethod
    def of(cls, fix: ClockFix, future: int) -> "ClockSpec":
        return cls(fix, Rule(fix.by, micros(fix.span), future, min(micros(fix.past), FOREVER // 2)))


@dataclass(frozen=True)
class SourceSpec:
    """A stream or a table over a topic, as tasks need to know it."""

    step: str
    topic: str
    schema: Schema  # of the topic, as declared
    columns: tuple[str, ...]  # those that steps read, and those that say the time
    time: str | None
    lateness: int | None  # None: watermarks move by marks alone
    idle: int
    raw: bool
    written: bool  # by a flow: rows bring time, position and W along
    headers: bool  # the stream's time is the topic's own, and frame headers know W
    future: int
    there: bool = True
    append: bool = False  # the append time is the event time
    append_time: str | None = None  # the column that holds the append time
    delay: int | None = None
    clock: ClockSpec | None = None
    versions: Versions | None = None  # it is read as a table
    changelog: bool = False  # written by a flow with rows that change: what holds is the last by offset
    ordered: bool = False  # written in the order of a flow's input, or of commits: of a table over it the last of a key holds
    envelope: tuple[str, ...] = ()  # the columns of a typed topic that holds envelopes: before, after, op …
    appended: bool = False  # rows carry their append time
    blind: bool = False  # the log has no headers: times and marks are known once the rows are read
    capture: str | None = None  # the capture that writes the topic: whole transactions are read, and the last of a key holds

    @property
    def static(self) -> bool:
        """It is no topic of the log at all."""
        return self.versions is not None and self.versions.static is not None

    @property
    def called(self) -> str:
        """What it is called beside the topics of the log."""
        return f"static {self.topic}" if self.static else self.topic

    @property
    def placed(self) -> bool:
        """Records may know their place in the database they come from."""
        return bool(self.envelope) or (
            self.raw and self.versions is not None and self.versions.form != "rows" and not self.versions.op
        )

    @property
    def ahead(self) -> bool:
        """What frames say is enough to know W behind them before their rows are read."""
        return self.headers or (self.append and not self.blind)

    @property
    def reads(self) -> list[str]:
        """The columns that are read from the topic."""
        return [name for name in self.columns if name in self.schema]

    @classmethod
    def of(cls, step: str, source: Source, schema: Schema, topic: Topic | None) -> "SourceSpec":
        declared = Schema(pa.schema([f for f in schema if f.name not in source.made]))
        topic = None if source.versions and source.versions.static else topic  # one of the log may have the same name
        spec = topic.spec if topic else TopicSpec(source.topic, schema=declared, time=source.time)
        _check(step, source, declared, spec)
        blind = topic is not None and not topic.headers
        written, table = spec.writer is not None, source.versions is not None
        committed = table and spec.capture is not None and source.time is None  # what a database did it did, whatever its clock
        future = FOREVER // 2 if committed else min(micros(spec.future), FOREVER // 2)
        return cls(
            step=step,
            topic=source.topic,
            schema=declared,
            columns=source.columns,
            time=None if written else source.clock.happened if source.clock else source.time,
            lateness=None if written or source.lateness is None else micros(source.lateness),
            idle=micros(source.idle),
            raw=spec.schema is None,
            written=written,
            headers=not blind and (written or table or (_own_time(source, spec) and not source.append and not source.clock)),
            future=future,
            there=topic is not None or (source.versions is not None and source.versions.static is not None),
            append=source.append and not written and not (table and spec.capture),  # there a commit's time is in the record
            append_time=source.append_time,
            delay=None if written or source.delay is None else micros(source.delay),
            clock=ClockSpec.of(source.clock, future) if source.clock else None,
            versions=_located(source.versions),
            changelog=spec.changelog,
            ordered=spec.ordered or (table and spec.capture is not None),
            envelope=tuple(n for n in FIELDS if spec.schema and n in spec.schema) if _envelope(source, spec) else (),
            appended=source.appended,
            blind=blind,
            capture=spec.capture,
        )


def topic_of(spec: SourceSpec, log: Log) -> Topic:
    """What a source reads: a topic of the log, or a static table; NotFound if it is not there."""
    if spec.versions and spec.versions.static:
        return StaticTopic(spec.topic, spec.versions.static, spec.schema, spec.versions.key)
    return log.topic(spec.topic)


def _located(versions: Versions | None) -> Versions | None:
    return replace(versions, static=located(versions.static)) if versions and versions.static else versions


def _own_time(source: Source, spec: TopicSpec) -> bool:
    return source.time is None or source.time == spec.time


def _envelope(source: Source, spec: TopicSpec) -> Schema | None:
    """The columns inside the envelopes of a typed topic, where it holds envelopes."""
    there = spec.schema
    if not source.versions or source.versions.form == "rows" or source.versions.op or not there or "op" not in there:
        return None
    inner = next((there.type(name) for name in ("after", "before") if name in there), None)
    return Schema(pa.schema(list(inner))) if inner is not None and pa.types.is_struct(inner) else None


def _check(step: str, source: Source, schema: Schema, spec: TopicSpec) -> None:
    if spec.writer and source.time:
        raise BadFlow(
            f"cannot read topic {spec.name} by the time {source.time!r}: flow {spec.writer} gave its rows their time",
            hint="leave time= and lateness= out: such a topic is read by the marks its flow writes",
        )
    if spec.writer and ((source.append and not source.versions) or source.clock):
        raise BadFlow(
            f"cannot read topic {spec.name} by another time: flow {spec.writer} gave its rows their time",
            hint="leave time= and clock_fix out: such a topic is read by the marks its flow writes",
        )
    if spec.changelog:
        _check_changelog(step, source, spec)
    there = _envelope(source, spec) or spec.schema
    if source.versions and source.versions.form == "debezium" and spec.schema and there is spec.schema:
        raise BadFlow(
            f'topic {spec.name} holds no envelopes: it has no columns "op" and "after"',
            f"it has: {spec.schema.ddl()}",
            hint='leave changes="debezium" out: its records are rows',
        )
    for field in schema if there else ():
        if there and field.name not in there:
            raise BadFlow(f"topic {spec.name} has no column {field.name!r}", f"it has: {there.ddl()}", f'step "{step}"')
        if there and there.type(field.name) != field.type:
            found = f"{field.name!r} is {type_text(there.type(field.name))} there, not {type_text(field.type)}"
            raise BadFlow(f"column {field.name!r} of topic {spec.name} has another type", found, f"the topic: {there.ddl()}")


def _check_changelog(step: str, source: Source, spec: TopicSpec) -> None:
    if not source.versions:
        raise BadFlow(
            f"topic {spec.name} is a changelog and cannot be read as a stream",
            f'step "{step}": flow {spec.writer} writes rows that change',
            hint=f'read its current rows: flow.table("{spec.name}", …, key=…)',
        )
    key = tuple(key_columns(spec))
    if set(source.versions.key) != set(key):
        raise BadFlow(
            f"topic {spec.name} is a changelog by {', '.join(key)}, and step {step!r} reads it by {', '.join(source.versions.key)}",
            hint=f"name the columns by which it was written: key={key if len(key) > 1 else key[0]!r}",
        )
