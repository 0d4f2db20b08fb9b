"""How far a capture has come in an outbox, and with the copies of its tables."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.capture.triggers.position import Copied, copies_of
from penstock.errors import Damaged

NOTHING = "1:1:"  # a snapshot that sees no transaction


@dataclass(frozen=True)
class OutboxPosition:
    """What was written: every transaction that a snapshot sees; and, while the ones between it and a later snapshot are written,
    those of them up to a place."""

    outbox: str  # which one
    windows: int = 0  # how many snapshots were reached
    removed: int = 0  # up to which of them the outbox was emptied, at least
    snapshot: str = NOTHING
    later: str | None = None  # the snapshot that is being reached
    last: int = 0  # of the last row that was written on the way there: its transaction's greatest seq,
    seq: int = 0  # and its own
    transactions: int = 0  # how many were begun, chunks of copies included: the number of the last one
    time: int = 0  # the greatest so far, microseconds
    copied: Mapping[str, Copied] = field(default_factory=dict)  # by table, as `named` writes it

    @property
    def goes_on(self) -> bool:
        """Whether a transaction was written in part."""
        return self.later is not None and self.seq < self.last

    def json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of(position: Mapping[str, Any]) -> "OutboxPosition":
        try:
            return OutboxPosition(**{**position, "copied": copies_of(position["copied"])})
        except (KeyError, TypeError) as error:
            raise Damaged(
                "the position of a capture cannot be read", str(error), hint="it was written by a later version"
            ) from error
