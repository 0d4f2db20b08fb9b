"""How far a capture has come in an outbox of SQLite, and with the copies of its tables."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.capture.triggers.position import Copied, copies_of
from penstock.errors import Damaged


@dataclass(frozen=True)
class SqlitePosition:
    """What was written: every row of the outbox up to a seq. Rows that were there at one look are one transaction."""

    outbox: str  # which one
    windows: int = 0  # how many looks have been written whole
    removed: int = 0  # how many of them were removed from the outbox since, at least
    seq: int = 0
    upto: int | None = None  # where the look ends that is being written; None: there is none
    begun: int = 0  # where that one began
    transactions: int = 0  # how many were begun, chunks of copies included: the number of the last one
    time: int = 0  # the greatest so far, microseconds
    copied: Mapping[str, Copied] = field(default_factory=dict)  # by table, as `named` writes it
    shapes: Mapping[str, int] = field(default_factory=dict)  # by table: with which columns it was copied

    def json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of(position: Mapping[str, Any]) -> "SqlitePosition":
        try:
            return SqlitePosition(**{**position, "copied": copies_of(position["copied"])})
        except (KeyError, TypeError) as error:
            raise Damaged(
                "the position of a capture cannot be read", str(error), hint="it was written by a later version"
            ) from error
