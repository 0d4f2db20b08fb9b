"""The table of a database that a sink writes: its name, its columns and its key, and what stands there already."""

import re
from dataclasses import dataclass

from penstock.core.schema import Schema
from penstock.errors import BadInput, SinkError
from penstock.sinks.port import SinkSpec

MARKERS = "penstock_marker"  # the table with the markers, beside the one that is written
_LONGEST = 63  # bytes of a name; PostgreSQL would cut longer ones


@dataclass(frozen=True)
class TableName:
    """As users write it: sales, or shop.sales."""

    schema: str | None
    name: str

    @classmethod
    def of(cls, given: str) -> "TableName":
        parts = given.split(".") if isinstance(given, str) else []
        if len(parts) not in (1, 2) or not all(_fits(part) for part in parts):
            raise BadInput(
                f"{given!r} is no name of a table", hint="write it like sales or shop.sales, 63 bytes at most for each part"
            )
        return cls(parts[0] if len(parts) == 2 else None, parts[-1])

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.schema, self.name) if self.schema else (self.name,)

    def beside(self, name: str) -> "TableName":
        return TableName(self.schema, name)

    def __str__(self) -> str:
        return ".".join(self.parts)


def emptying(table: TableName, flow: str, sink: str, quote: str = '"') -> str:
    """The statements that take out all rows of a table, and the marker of a sink beside it. quote: around names."""
    markers = f"DELETE FROM {_written(table.beside(MARKERS), quote)} WHERE flow = '{flow}' AND sink = '{sink}'"
    return f"DELETE FROM {_written(table, quote)}; {markers}"


def _written(table: TableName, quote: str) -> str:
    """As it stands in a statement."""
    return ".".join(
        part if re.fullmatch("[a-z_][a-z0-9_]*", part) else f"{quote}{part.replace(quote, 2 * quote)}{quote}"
        for part in table.parts
    )


def _fits(part: str) -> bool:
    return bool(part) and len(part.encode()) <= _LONGEST and not re.search(r"[\x00-\x1f\x7f]", part)


def too_long(schema: Schema) -> str | None:
    """The first column whose name a database would cut, so that two could become one."""
    return next((name for name in schema.names if len(name.encode()) > _LONGEST), None)


def check_key(called: str, spec: SinkSpec) -> None:
    """Refuses rows that change where no column tells them apart: a table has no place for their position."""
    if spec.updating and not spec.key:
        raise SinkError(
            f"{called} cannot take rows that change: no column tells them apart",
            hint="name the columns that do: key=…",
        )
