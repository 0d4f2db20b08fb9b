"""The columns of a topic or stream: from a DDL string, from Arrow, from a dataclass.

>>> Schema.of("order_id string, amount double, at timestamp").ddl()
'order_id string, amount double, at timestamp'
"""

import dataclasses
import datetime as dt
import decimal
import re
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.core.names import check_column
from penstock.errors import BadSchema

TIMESTAMP = pa.timestamp("us", tz="UTC")

_SIMPLE: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
}
_ALIASES = {"bool": "boolean", "byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float"}
_ALIASES |= {"str": "string", "text": "string", "varchar": "string", "datetime": "timestamp", "float64": "double"}
# What is printed for each type: the word Spark users write first.
_WORDS = {t: {"bigint": "long"}.get(word, word) for word, t in _SIMPLE.items()}
_PYTHON: dict[object, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    dt.date: pa.date32(),
    dt.datetime: TIMESTAMP,
    decimal.Decimal: pa.decimal128(38, 18),
}
_TOKEN = re.compile(r"\s*([^\W]\w*|[<>(),:]|\d+|`[^`]+`)")


@dataclass(frozen=True)
class Schema:
    """Ordered columns with Arrow types; every column may be null unless `not null` was written."""

    arrow: pa.Schema

    @classmethod
    def of(cls, given: "str | pa.Schema | type | Schema") -> "Schema":
        """The schema a user gave: DDL text, an Arrow schema, a dataclass, or a Schema."""
        if isinstance(given, Schema):
            return given
        if isinstance(given, str):
            return cls.from_ddl(given)
        if isinstance(given, pa.Schema):
            return cls.from_arrow(given)
        if dataclasses.is_dataclass(given):
            return cls.from_dataclass(given)
        raise BadSchema(f"cannot make a schema from {given!r}", hint='write it like "order_id string, amount double, at timestamp"')

    @classmethod
    def from_ddl(cls, ddl: str) -> "Schema":
        return cls._checked(_Ddl(ddl).fields(), ddl)

    @classmethod
    def from_arrow(cls, schema: pa.Schema) -> "Schema":
        return cls._checked([pa.field(f.name, _normal(f.type, f.name), f.nullable) for f in schema], str(schema))

    @classmethod
    def from_dataclass(cls, given: typing.Any) -> "Schema":
        hints = typing.get_type_hints(given)
        return cls._checked([_python_field(f.name, hints[f.name]) for f in dataclasses.fields(given)], str(given))

    @classmethod
    def _checked(cls, fields: list[pa.Field], source: str) -> "Schema":
        if not fields:
            raise BadSchema("a schema needs at least one column", hint='write it like "order_id string, at timestamp"')
        seen: set[str] = set()
        for f in fields:
            check_column(f.name)
            if f.name.lower() in seen:
                raise BadSchema(f"column {f.name!r} is twice in the schema", source)
            seen.add(f.name.lower())
        return cls(pa.schema(fields))

    @property
    def names(self) -> list[str]:
        return list(self.arrow.names)

    def __iter__(self) -> Iterator[pa.Field]:
        return iter(self.arrow)

    def __contains__(self, name: object) -> bool:
        return name in self.arrow.names

    def type(self, name: str) -> pa.DataType:
        found: pa.DataType = self.arrow.field(name).type
        return found

    def ddl(self) -> str:
        """The schema as DDL text; `Schema.of` reads it back."""
        return ", ".join(f"{f.name} {type_text(f.type)}{'' if f.nullable else ' not null'}" for f in self.arrow)

    def can_become(self, other: "Schema") -> str | None:
        """None if a topic of this schema may go on with the other; else the reason why not.

        A nullable column may be added at the end; nothing else may change."""
        mine, theirs = list(self.arrow), list(other.arrow)
        for f in mine:
            if f.name not in other.arrow.names:
                return f"column {f.name!r} is missing"
            new = other.arrow.field(f.name)
            if new.type != f.type:
                return f"column {f.name!r} is {type_text(f.type)}, not {type_text(new.type)}"
            if new.nullable != f.nullable:
                return f"column {f.name!r} {'may' if f.nullable else 'must not'} be null"
        for f in theirs:
            if f.name not in self.arrow.names and not f.nullable:
                return f"the new column {f.name!r} must be nullable: older rows have no value for it"
        if [f.name for f in theirs][: len(mine)] != [f.name for f in mine]:
            return "columns may be added at the end only"
        return None


def type_text(t: pa.DataType) -> str:
    """An Arrow type as Spark's DDL writes it."""
    if t in _WORDS:
        return _WORDS[t]
    if pa.types.is_decimal(t):
        return f"decimal({t.precision},{t.scale})"
    if pa.types.is_list(t):
        return f"array<{type_text(t.value_type)}>"
    if pa.types.is_map(t):
        return f"map<{type_text(t.key_type)},{type_text(t.item_type)}>"
    if pa.types.is_struct(t):
        return "struct<" + ",".join(f"{f.name}:{type_text(f.type)}" for f in t) + ">"
    raise BadSchema(f"the Arrow type {t} has no name in a schema")


def _normal(t: pa.DataType, where: str) -> pa.DataType:
    """Arrow's many types as the ones a schema has: times in UTC microseconds, plain strings, nested alike."""
    if t in _WORDS:
        return t
    if pa.types.is_timestamp(t):
        return TIMESTAMP
    if pa.types.is_large_string(t) or pa.types.is_string_view(t):
        return pa.string()
    if pa.types.is_large_binary(t) or pa.types.is_binary_view(t) or pa.types.is_fixed_size_binary(t):
        return pa.binary()
    if pa.types.is_dictionary(t):
        return _normal(t.value_type, where)
    if pa.types.is_uint8(t) or pa.types.is_uint16(t):
        return pa.int32()
    if pa.types.is_uint32(t):
        return pa.int64()
    if pa.types.is_decimal(t) and t.precision <= 38:
        return pa.decimal128(t.precision, t.scale)
    if pa.types.is_list(t) or pa.types.is_large_list(t) or pa.types.is_fixed_size_list(t):
        return pa.list_(_normal(t.value_type, where))
    if pa.types.is_map(t):
        return pa.map_(_normal(t.key_type, where), _normal(t.item_type, where))
    if pa.types.is_struct(t):
        return pa.struct([(f.name, _normal(f.type, where)) for f in t])
    raise BadSchema(f"column {where!r} has the Arrow type {t}, which a topic cannot hold")


def _python_field(name: str, hint: typing.Any) -> pa.Field:
    nullable = False
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        inner = [a for a in typing.get_args(hint) if a is not type(None)]
        nullable, hint = len(inner) < len(typing.get_args(hint)), inner[0] if len(inner) == 1 else hint
    return pa.field(name, _python_type(name, hint), nullable)


def _python_type(name: str, hint: typing.Any) -> pa.DataType:
    if hint in _PYTHON:
        return _PYTHON[hint]
    if typing.get_origin(hint) is list:
        return pa.list_(_python_type(name, typing.get_args(hint)[0]))
    if typing.get_origin(hint) is dict:
        key, item = typing.get_args(hint)
        return pa.map_(_python_type(name, key), _python_type(name, item))
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return pa.struct([(f.name, _python_type(f.name, hints[f.name])) for f in dataclasses.fields(hint)])
    raise BadSchema(f"field {name!r} has the type {hint!r}, which no column can hold", hint="use str, int, float, bool, datetime …")


class _Ddl:
    """Reads `name type [not null], …`, types as Spark writes them."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def fields(self) -> list[pa.Field]:
        fields = [self.field()]
        while self.peek() == ",":
            self.take(",")
            fields.append(self.field())
        if self.peek():
            self.fail(f"did not expect {self.peek()!r}")
        return fields

    def field(self) -> pa.Field:
        name = self.take().strip("`")
        if self.peek() == ":":
            self.take(":")
        kind, nullable = self.type(), True
        if self.peek().lower() == "not":
            self.take()
            if self.take().lower() != "null":
                self.fail("expected NULL after NOT")
            nullable = False
        return pa.field(name, kind, nullable)

    def type(self) -> pa.DataType:
        word = self.take().lower()
        word = _ALIASES.get(word, word)
        if word in _SIMPLE:
            return _SIMPLE[word]
        if word in ("decimal", "numeric"):
            return self.decimal()
        if word == "array":
            self.take("<")
            inner = self.type()
            self.take(">")
            return pa.list_(inner)
        if word == "map":
            self.take("<")
            key = self.type()
            self.take(",")
            item = self.type()
            self.take(">")
            return pa.map_(key, item)
        if word == "struct":
            return self.struct()
        return self.fail(f"there is no type {word!r}")

    def decimal(self) -> pa.DataType:
        precision, scale = 10, 0
        if self.peek() == "(":
            self.take("(")
            precision = self.number()
            if self.peek() == ",":
                self.take(",")
                scale = self.number()
            self.take(")")
        if not 1 <= precision <= 38 or scale > precision:
            self.fail("a decimal has 1 to 38 digits")
        return pa.decimal128(precision, scale)

    def struct(self) -> pa.DataType:
        self.take("<")
        fields = [self.field()]
        while self.peek() == ",":
            self.take(",")
            fields.append(self.field())
        self.take(">")
        return pa.struct(fields)

    def number(self) -> int:
        word = self.take()
        return int(word) if word.isdigit() else self.fail(f"expected a number, found {word!r}")

    def peek(self) -> str:
        found = _TOKEN.match(self.text, self.at)
        return found[1] if found else self.text[self.at :].strip()[:1]

    def take(self, expected: str | None = None) -> str:
        found = _TOKEN.match(self.text, self.at)
        if not found or (expected and found[1] != expected):
            self.fail(f"expected {expected or 'a name or type'}")
        assert found
        self.at = found.end()
        return found[1]

    def fail(self, why: str) -> typing.NoReturn:
        raise BadSchema(
            f"cannot read the schema: {why}",
            self.text,
            " " * len(self.text[: self.at]) + "^",
            hint='write it like "order_id string, amount double, at timestamp"',
        )
