"""How far a capture has come in the log of a server, and with the copies of its tables."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.capture.naming import escaped, unescaped
from penstock.capture.port import Table
from penstock.errors import Damaged


@dataclass(frozen=True)
class Copied:
    """How far the copy of a table has come: the key of the last row that was read, as text by column. `identity`: which table of
    its name it is, and since when it is published. `replaces`: the topic has rows of an earlier one."""

    done: bool = False
    chunks: int = 0
    rows: int = 0
    after: tuple[str, ...] | None = None
    identity: str = ""
    key: tuple[str, ...] = ()
    replaces: bool = False


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
    copied: Mapping[str, Copied] = field(default_factory=dict)  # by table, as `named` writes it
    recent: tuple[int, ...] | None = None  # transactions that were written and may not be visible yet; None: nobody has looked

    def json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of(position: Mapping[str, Any]) -> "WalPosition":
        try:
            copied = {table: _copied(each) for table, each in position["copied"].items()}
            return WalPosition(**{**position, "copied": copied, "recent": _tuple(position.get("recent"))})
        except (KeyError, TypeError) as error:
            raise Damaged(
                "the position of a capture cannot be read", str(error), hint="it was written by a later version"
            ) from error


def named(table: Table) -> str:
    """A table as positions name it; two tables are never named the same."""
    return ".".join(map(escaped, table))


def table_of(name: str) -> Table:
    """The table that `named` has named."""
    schema, table = map(unescaped, name.split("."))
    return schema, table


def _copied(told: Mapping[str, Any]) -> Copied:
    return Copied(**{**told, "after": _tuple(told["after"]), "key": tuple(told.get("key", ()))})


def _tuple(values: Sequence[Any] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)
