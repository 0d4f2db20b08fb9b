"""Types of PostgreSQL by their object ids, and what each becomes in the schema of a topic."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from penstock.capture.postgres.connecting import translated
from penstock.core.names import check_column
from penstock.errors import BadName

if TYPE_CHECKING:
    from penstock.capture.postgres.connecting import Connection

# The ids of types that come with the server are the same on every server.
BOOL, BYTEA, INT8, INT2, INT4, TEXT = 16, 17, 20, 21, 23, 25
FLOAT4, FLOAT8, DATE, TIMESTAMP, TIMESTAMPTZ, NUMERIC = 700, 701, 1082, 1114, 1184, 1700
INTEGERS, FLOATS = frozenset({INT2, INT4, INT8}), frozenset({FLOAT4, FLOAT8})

Kind = Literal["base", "domain", "enum", "array", "composite", "range", "multirange", "pseudo", "gone"]

NO_MODIFIER = -1
_KINDS: dict[str, Kind] = {
    "b": "base",
    "c": "composite",
    "d": "domain",
    "e": "enum",
    "m": "multirange",
    "p": "pseudo",
    "r": "range",
}
_WORDS = {
    BOOL: "boolean",
    INT2: "smallint",
    INT4: "int",
    INT8: "long",
    FLOAT4: "float",
    FLOAT8: "double",
    DATE: "date",
    TIMESTAMP: "timestamp",
    TIMESTAMPTZ: "timestamp",
    BYTEA: "binary",
}
_LONGEST_DECIMAL = 38
_TYPES = """
select t.oid::bigint, format_type(t.oid, null), t.typtype::text, t.typbasetype::bigint, t.typtypmod, t.typndims,
       e.oid::bigint, e.typdelim::text
from pg_type t left join pg_type e on e.oid = t.typelem and e.typarray = t.oid
where t.oid::bigint = any(%s::bigint[])"""


@dataclass(frozen=True)
class PgType:
    """A type: what its values look like as text is that of its base, if it is a domain, and of its elements, if it is an array."""

    oid: int
    name: str
    kind: Kind = "base"
    element: "PgType | None" = None  # of an array
    delimiter: str = ","  # between the elements of an array
    base: "PgType | None" = None  # of a domain
    modifier: int = NO_MODIFIER  # of a domain: that of its base, such as the digits of a numeric
    dimensions: int = 0  # of a domain over an array: those it was declared with

    @property
    def plain(self) -> "PgType":
        """The type that a domain, or a domain over one, stands for."""
        return self.base.plain if self.base else self


class Types:
    """Types looked up on a server and remembered. An id that the server does not know, as its type was dropped since, is text; it
    is looked for again next time, as a type may be streamed before it is visible."""

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._known: dict[int, PgType] = {}

    def of(self, oid: int) -> PgType:
        return self.all([oid])[oid]

    def all(self, oids: Iterable[int]) -> dict[int, PgType]:
        """The types of these ids, with one statement for all that are new, and one more for each level inside of them."""
        wanted = list(oids)
        self._look_up({oid for oid in wanted if oid not in self._known})
        return {oid: self._known.get(oid) or gone(oid) for oid in wanted}

    def _look_up(self, oids: set[int]) -> None:
        if not oids:
            return
        with translated("look up types"):
            found = [_Row(*row) for row in self._connection.execute(_TYPES, (sorted(oids),))]
        inside = {oid for row in found for oid in (row.base, row.element) if oid}
        self._look_up(inside - self._known.keys())
        for row in found:
            self._known[row.oid] = self._made(row)

    def _made(self, row: "_Row") -> PgType:
        if row.element:
            return PgType(row.oid, row.name, "array", self._inside(row.element), row.delimiter or ",")
        base = self._inside(row.base) if row.base else None
        kind = _KINDS.get(row.kind, "base")
        return PgType(row.oid, row.name, kind, base=base, modifier=row.modifier, dimensions=row.dimensions)

    def _inside(self, oid: int) -> PgType:
        return self._known.get(oid) or gone(oid)


class _Row(NamedTuple):
    oid: int
    name: str
    kind: str
    base: int
    modifier: int
    dimensions: int
    element: int | None
    delimiter: str | None


def gone(oid: int) -> PgType:
    """A type of which nothing is known; its values are text."""
    return PgType(oid, f"type {oid}", "gone")


def ddl_type(type: PgType, modifier: int = NO_MODIFIER, dimensions: int = 0) -> str:
    """The type in the schema of a topic. modifier and dimensions are those of the column; a domain has its own."""
    while type.base:
        type, modifier, dimensions = type.base, type.modifier, type.dimensions
    if type.element:
        inside = ddl_type(type.element, modifier)
        return "array<" * max(1, dimensions) + inside + ">" * max(1, dimensions)
    return _decimal(modifier) if type.oid == NUMERIC else _WORDS.get(type.oid, "string")


def ddl_columns(columns: Sequence[tuple[str, str]]) -> str:
    """Names and types as the schema of a topic, without the columns that no schema can name; empty if there are no others."""
    kept: dict[str, str] = {}
    for name, type in columns:
        if _can_be_named(name):
            kept.setdefault(name.lower(), f"{name} {type}")  # a schema does not tell upper from lower case
    return ", ".join(kept.values())


def _can_be_named(name: str) -> bool:
    try:
        return bool(check_column(name))
    except BadName:
        return False


def _decimal(modifier: int) -> str:
    """The digits that a numeric was declared with; text where there may be more than a decimal has."""
    if modifier < 4:
        return "string"
    precision, scale = (modifier - 4) >> 16, (((modifier - 4) & 0x7FF) ^ 0x400) - 0x400  # the scale has 11 bits and a sign
    precision, scale = max(precision - min(scale, 0), scale), max(scale, 0)
    return f"decimal({precision},{scale})" if precision <= _LONGEST_DECIMAL else "string"
