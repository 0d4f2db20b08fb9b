"""A record: what a log holds, one row at a time. Batches are Arrow tables; this is for people and small programs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.core.position import Position


@dataclass(frozen=True)
class Record:
    """One record as it was read."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: Mapping[str, Any] | bytes | None  # None: a raw topic's delete
    time: int  # event time, microseconds
    appended: int  # append time, microseconds
    headers: Mapping[str, bytes] = field(default_factory=dict)
    deleted: bool = False  # it says that the row of its key is gone

    @property
    def position(self) -> Position:
        return Position(self.topic, self.partition, self.offset)
