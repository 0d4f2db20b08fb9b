"""How far a capture has come in the log of a server, and with the copies of its tables."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.errors import Damaged


@dataclass(frozen=True)
class Copied:
    """How far the copy of a table has come: the key of the last row that was read, as text by column."""

    done: bool = False
    chunks: int = 0
    rows: int = 0
    after: tuple[str, ...] | None = None


@dataclass(frozen=True)
class WalPosition:
    """What was written: all transactions up to one, some changes of the next, and the copies as far as they have come."""

    system: str  # which server
    timeline: int
    lsn: int  # of the last transaction's commit
    end: int  # where its commit ends: everything before is confirmed
    open_lsn: int = 0  # of a transaction that was written in part; 0: none
    open_changes: int = 0  # how many of its changes were
    time: int = 0  # the greatest time of a commit, microseconds
    copied: Mapping[str, Copied] = field(default_factory=dict)  # by table, as `schema.table`

    def json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of(position: Mapping[str, Any]) -> "WalPosition":
        try:
            copied = {table: Copied(**{**each, "after": _key(each["after"])}) for table, each in position["copied"].items()}
            return WalPosition(**{**position, "copied": copied})
        except (KeyError, TypeError) as error:
            raise Damaged(
                "the position of a capture cannot be read", str(error), hint="it was written by a later version"
            ) from error


def _key(values: list[str] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(values)
