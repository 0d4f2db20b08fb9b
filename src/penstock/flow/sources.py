"""Streams: topics as a flow reads them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

import pyarrow as pa

from penstock.core.schema import Schema, type_text
from penstock.flow import plan
from penstock.flow.definition import Known
from penstock.flow.place import At


@dataclass(frozen=True)
class StreamDefinition:
    """A topic with the columns, time and lateness under which it is read."""

    topic: str
    schema: Schema
    time: str | None
    lateness: timedelta | None
    idle: timedelta
    key: tuple[str, ...] = ()

    kind: ClassVar[str] = "stream"
    judges: ClassVar[bool] = False
    takes_updates: ClassVar[bool] = True
    by: ClassVar[tuple[str, ...]] = ()

    def resolve(self, at: At, inputs: Sequence[Known]) -> Known:
        time = self._time(at)
        key = at.columns(self.key, self.schema, f"take the key of {self.topic}")
        source = plan.Source(self.topic, time, self.lateness, self.idle, tuple(self.schema.names), key)
        step = plan.Step(at.step or self.topic, (), source, self.schema, at.origin)
        return Known((step,), step.name, topic_key=key)

    def _time(self, at: At) -> str | None:
        if self.time is None:
            return None
        time = at.column(self.time, self.schema, f"take the time of {self.topic}")
        if not pa.types.is_timestamp(self.schema.type(time)):
            at.refuse(
                f"cannot take the time of {self.topic} from {time!r}: it is {type_text(self.schema.type(time))}, not timestamp",
                hint=f'declare the column as a timestamp: "{time} timestamp"',
            )
        return time
