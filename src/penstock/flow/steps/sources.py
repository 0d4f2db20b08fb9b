"""Streams: topics as a flow reads them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

import pyarrow as pa

from penstock import plan
from penstock.core.schema import TIMESTAMP, Schema, type_text
from penstock.flow.definition import Known
from penstock.flow.place import At
from penstock.flow.steps import clocks
from penstock.flow.steps.clocks import APPEND


@dataclass(frozen=True)
class StreamDefinition:
    """A topic with the columns, time and lateness under which it is read."""

    topic: str
    schema: Schema
    time: str | None  # a column, or APPEND
    lateness: timedelta | None
    idle: timedelta
    key: tuple[str, ...] = ()
    delay: timedelta | None = None
    append_time: str | None = None
    clock: plan.ClockFix | None = None

    kind: ClassVar[str] = "stream"
    judges: ClassVar[bool] = False
    takes_updates: ClassVar[bool] = True
    by: ClassVar[tuple[str, ...]] = ()

    @property
    def called(self) -> str:
        return self.topic

    @property
    def timed(self) -> bool:
        """The flow says which time its rows have."""
        return self.time is not None or self.clock is not None

    @property
    def waits(self) -> timedelta | None:
        """The lateness; rows never go back in append time, so there nothing needs to be waited for."""
        return timedelta() if self.lateness is None and self.time == APPEND else self.lateness

    def resolve(self, at: At, inputs: Sequence[Known]) -> Known:
        clock = clocks.checked(self.clock, self.topic, self.schema, at) if self.clock else None
        time = time_column(self.time, self.topic, self.schema, at)
        key = at.columns(self.key, self.schema, f"take the key of {self.topic}")
        schema = self._with_made(clock, at)
        source = plan.Source(
            self.topic,
            time,
            self.waits,
            self.idle,
            tuple(schema.names),
            key,
            append=self.time == APPEND,
            append_time=self.append_time,
            delay=self.delay,
            clock=clock,
        )
        step = plan.Step(at.step or self.topic, (), source, schema, at.origin)
        return Known((step,), step.name, topic_key=key)

    def _with_made(self, clock: plan.ClockFix | None, at: At) -> Schema:
        """The declared columns and those that the stream adds."""
        made = clocks.fields(clock) if clock else []
        if self.append_time is not None:
            made.append(pa.field(at.new_name(self.append_time), TIMESTAMP, nullable=False))
        names = [*self.schema.names, *(f.name for f in made)]
        at.new_columns(names, f"read {self.topic}", hint="give the column that is added another name")
        return Schema(pa.schema([*self.schema, *made])) if made else self.schema


def time_column(given: str | None, topic: str, schema: Schema, at: At) -> str | None:
    """The column that says the time of rows; None: no column does."""
    if given == APPEND:
        clocks.refuse_ambiguous("time", schema, at)
    if given is None or given == APPEND:
        return None
    time = at.column(given, schema, f"take the time of {topic}")
    if not pa.types.is_timestamp(schema.type(time)):
        at.refuse(
            f"cannot take the time of {topic} from {time!r}: it is {type_text(schema.type(time))}, not timestamp",
            hint=f'declare the column as a timestamp: "{time} timestamp"',
        )
    return time
