"""A stream over a topic, as the engine and its tasks need to know it."""

from dataclasses import dataclass

from penstock.core.schema import Schema
from penstock.core.time import micros
from penstock.errors import BadFlow
from penstock.flow.plan import Source
from penstock.log.port import Topic, TopicSpec


@dataclass(frozen=True)
class SourceSpec:
    """A stream over a topic, as tasks need to know it."""

    step: str
    topic: str
    schema: Schema  # declared
    columns: tuple[str, ...]  # those that are read
    time: str | None
    lateness: int | None  # None: watermarks move by marks alone
    idle: int
    raw: bool
    written: bool  # by a flow: rows bring time, position and W along
    headers: bool  # the stream's time is the topic's own, so that frame headers know W
    future: int
    there: bool = True

    @classmethod
    def of(cls, step: str, source: Source, schema: Schema, topic: Topic | None) -> "SourceSpec":
        spec = topic.spec if topic else TopicSpec(source.topic, schema=schema, time=source.time)
        _check(step, source, schema, spec)
        written = spec.writer is not None
        return cls(
            step=step,
            topic=source.topic,
            schema=schema,
            columns=source.columns,
            time=None if written else source.time,
            lateness=None if written or source.lateness is None else micros(source.lateness),
            idle=micros(source.idle),
            raw=spec.schema is None,
            written=written,
            headers=written or source.time is None or source.time == spec.time,
            future=micros(spec.future),
            there=topic is not None,
        )


def _check(step: str, source: Source, schema: Schema, spec: TopicSpec) -> None:
    if spec.writer and source.time:
        raise BadFlow(
            f"cannot read topic {spec.name} by the time {source.time!r}: flow {spec.writer} gave its rows their time",
            hint="leave time= and lateness= out: such a topic is read by the marks its flow writes",
        )
    if spec.changelog:
        raise BadFlow(f"topic {spec.name} is a changelog and cannot be read as a stream")
    for field in schema if spec.schema else ():
        if spec.schema and field.name not in spec.schema:
            raise BadFlow(f"topic {spec.name} has no column {field.name!r}", f"it has: {spec.schema.ddl()}", f'step "{step}"')
        if spec.schema and spec.schema.type(field.name) != field.type:
            raise BadFlow(f"column {field.name!r} of topic {spec.name} has another type", f"the topic: {spec.schema.ddl()}")
