"""A stream over a topic, as the engine and its tasks need to know it."""

from dataclasses import dataclass

import pyarrow as pa

from penstock.core.schema import Schema
from penstock.core.time import FOREVER, micros
from penstock.errors import BadFlow
from penstock.flow.plan import ClockFix, Source
from penstock.kernels.clocks import Rule
from penstock.log.port import Topic, TopicSpec


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
    """A stream over a topic, as tasks need to know it."""

    step: str
    topic: str
    schema: Schema  # of the topic, as declared
    columns: tuple[str, ...]  # those that steps read, and those that say the time
    time: str | None
    lateness: int | None  # None: watermarks move by marks alone
    idle: int
    raw: bool
    written: bool  # by a flow: rows bring time, position and W along
    headers: bool  # the stream's time is the topic's own, so that frame headers know W
    future: int
    there: bool = True
    append: bool = False  # the append time is the event time
    append_time: str | None = None  # the column that holds the append time
    delay: int | None = None
    clock: ClockSpec | None = None

    @property
    def ahead(self) -> bool:
        """What frames say is enough to know W behind them before their rows are read."""
        return self.headers or self.append

    @property
    def reads(self) -> list[str]:
        """The columns that are read from the topic."""
        return [name for name in self.columns if name in self.schema]

    @classmethod
    def of(cls, step: str, source: Source, schema: Schema, topic: Topic | None) -> "SourceSpec":
        declared = Schema(pa.schema([f for f in schema if f.name not in source.made]))
        spec = topic.spec if topic else TopicSpec(source.topic, schema=declared, time=source.time)
        _check(step, source, declared, spec)
        written, future = spec.writer is not None, min(micros(spec.future), FOREVER // 2)
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
            headers=written or (_own_time(source, spec) and not source.append and not source.clock),
            future=future,
            there=topic is not None,
            append=source.append,
            append_time=source.append_time,
            delay=None if written or source.delay is None else micros(source.delay),
            clock=ClockSpec.of(source.clock, future) if source.clock else None,
        )


def _own_time(source: Source, spec: TopicSpec) -> bool:
    return source.time is None or source.time == spec.time


def _check(step: str, source: Source, schema: Schema, spec: TopicSpec) -> None:
    if spec.writer and source.time:
        raise BadFlow(
            f"cannot read topic {spec.name} by the time {source.time!r}: flow {spec.writer} gave its rows their time",
            hint="leave time= and lateness= out: such a topic is read by the marks its flow writes",
        )
    if spec.writer and (source.append or source.clock):
        raise BadFlow(
            f"cannot read topic {spec.name} by another time: flow {spec.writer} gave its rows their time",
            hint="leave time= and clock_fix out: such a topic is read by the marks its flow writes",
        )
    if spec.changelog:
        raise BadFlow(f"topic {spec.name} is a changelog and cannot be read as a stream")
    for field in schema if spec.schema else ():
        if spec.schema and field.name not in spec.schema:
            raise BadFlow(f"topic {spec.name} has no column {field.name!r}", f"it has: {spec.schema.ddl()}", f'step "{step}"')
        if spec.schema and spec.schema.type(field.name) != field.type:
            raise BadFlow(f"column {field.name!r} of topic {spec.name} has another type", f"the topic: {spec.schema.ddl()}")
