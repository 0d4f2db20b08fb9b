"""What a poll needs of a database: its tables, all in one state, piece by piece."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock.capture.port import Table, TableFacts


@dataclass(frozen=True)
class Piece:
    """Some rows of a table."""

    table: Table
    facts: TableFacts
    keys: pa.Array  # of utf8: JSON objects
    rows: pa.Array


class PollSource(Protocol):
    """Reads the tables of one database."""

    connector: str

    @property
    def database(self) -> str: ...

    def open(self) -> None:
        """Connects; Disconnected if the database does not answer."""
        ...

    def pieces(self, tables: Sequence[Table]) -> Iterator[Piece]:
        """All rows of these tables as they were at one moment; at least one piece of each table, the tables one by one."""
        ...

    def estimate(self, table: Table) -> int:
        """About how many rows it has; not while pieces are read."""
        ...

    def close(self) -> None: ...
