"""How far the copies of tables have come."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.capture.naming import escaped
from penstock.capture.port import Table


@dataclass(frozen=True)
class Copied:
    """How far the copy of a table has come: the key of the last row that was read, by column."""

    done: bool = False
    chunks: int = 0
    rows: int = 0
    after: tuple[Any, ...] | None = None


def named(table: Table) -> str:
    """A table as positions name it; two tables are never named the same."""
    return ".".join(map(escaped, table))


def copies_of(told: Mapping[str, Mapping[str, Any]]) -> dict[str, Copied]:
    """The copies as a position has them. KeyError or TypeError if they cannot be read."""
    return {
        table: Copied(**{**each, "after": None if each["after"] is None else tuple(each["after"])}) for table, each in told.items()
    }
