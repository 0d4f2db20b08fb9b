"""The dead letters of flows, as people look at them: which step failed on which record, and why."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.core.position import Position
from penstock.engine.execute.program import DEAD
from penstock.engine.run.letters import letter_topic
from penstock.errors import NotFound
from penstock.log.port import Log

_KIND = re.compile(r"^([A-Z][A-Z_0-9.]{3,}|\w+(?:Error|Exception|Invalid)|ArrowInvalid): ")
_SHORT = 60


@dataclass(frozen=True)
class DeadLetter:
    """One row of a flow's dead topic."""

    place: Position  # of the letter
    step: str
    expression: str | None  # None: the record could not be read at all
    reason: str
    record: Position | None  # the record that the row was; None where it was made from several
    time: datetime | None
    row: str

    @property
    def cause(self) -> str:
        """What letters with the same kind of cause have in common: Spark's condition, Python's exception, else the reason."""
        known = _KIND.match(self.reason)
        return known[1] if known else self.reason if len(self.reason) <= _SHORT else f"{self.reason[: _SHORT - 1]}…"


def dead_letters_of(log: Log, flow: str) -> Iterator[DeadLetter]:
    """The dead letters of a flow, the oldest first; none if it never had any."""
    name = letter_topic(flow, DEAD)
    try:
        topic = log.topic(name)
    except NotFound:
        return
    for partition, end in topic.ends().items():
        for chunk in topic.read(partition, end.first):
            for offset, row in zip(chunk.offsets.tolist(), chunk.rows.to_pylist(), strict=True):
                yield _letter(Position(name, partition, offset), row)


def _letter(place: Position, row: dict[str, Any]) -> DeadLetter:
    known = row["topic"] is not None and row["offset"] is not None
    record = Position(row["topic"], row["partition"], row["offset"]) if known else None
    return DeadLetter(place, row["step"], row.get("expression"), row["reason"] or "", record, row["time"], row["row"] or "")
