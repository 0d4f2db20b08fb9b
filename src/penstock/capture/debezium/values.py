"""Values and types of Debezium's records as the topics of captures have them: days and times as ISO 8601 without a zone where the
column has none, decimals as text, bytes as base64."""

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Any

import orjson

from penstock.capture.port import TableFacts
from penstock.capture.postgres.values.types import ddl_columns

Convert = Callable[[Any], Any]

_WORDS = {
    "INT8": "tinyint",
    "INT16": "smallint",
    "INT32": "int",
    "INT64": "long",
    "FLOAT32": "float",
    "FLOAT64": "double",
    "BOOLEAN": "boolean",
    "STRING": "string",
    "BYTES": "binary",
}
_LOGICAL = {
    "io.debezium.time.IsoDate": "date",
    "io.debezium.time.IsoTimestamp": "timestamp",
    "io.debezium.time.ZonedTimestamp": "timestamp",
}
_DECIMAL = re.compile(r"(NUMERIC|DECIMAL|BIGINT)\b", re.IGNORECASE)
_CONNECT_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_LONGEST_DECIMAL = 38
_COLUMN = "__debezium.source.column."
_EXACT = Context(prec=1000)
_FRACTION = re.compile(r"\.(\d*?)0*(Z?)$")
_INFINITY = "-5877611-06-21Z"
_SPECIAL = {"NAN": "NaN", "POSITIVE_INFINITY": "Infinity", "NEGATIVE_INFINITY": "-Infinity"}  # numbers, as Debezium calls them
_FIRST_DAY, _LAST_DAY = "0001-01-01", "9999-12-31"
_FIRST_TIME, _LAST_TIME = f"{_FIRST_DAY}T00:00:00", f"{_LAST_DAY}T23:59:59.999999"


@dataclass(frozen=True)
class Shape:
    """A table as it is for some records."""

    facts: TableFacts
    converts: Mapping[str, Convert] = field(default_factory=dict)  # by column, of those whose values look otherwise

    def row(self, row: Any) -> dict[str, Any]:
        """The values as topics have them."""
        found: dict[str, Any] = row if isinstance(row, dict) else orjson.loads(row)
        for name, convert in self.converts.items():
            value = found.get(name)
            if value is not None:
                found[name] = convert(value)
        return found


def shape_of(told: Mapping[str, Any]) -> Shape:
    """What the process of Debezium has told of a table."""
    columns: Sequence[tuple[str, Mapping[str, Any]]] = told["columns"]
    converts = {name: convert for name, schema in columns if (convert := conversion(schema))}
    return Shape(TableFacts(ddl_columns([(name, ddl_type(schema)) for name, schema in columns]), tuple(told["key"])), converts)


def ddl_type(schema: Mapping[str, Any]) -> str:
    """The type in the schema of a topic."""
    if schema["type"] == "ARRAY":
        return f"array<{ddl_type(schema['items'])}>"
    if _is_decimal(schema):
        return _decimal(schema["parameters"])
    return _LOGICAL.get(schema["name"] or "") or _WORDS.get(schema["type"], "string")


def _is_decimal(schema: Mapping[str, Any]) -> bool:
    exact = schema["type"] == "STRING" or schema["name"] == _CONNECT_DECIMAL
    return exact and bool(_DECIMAL.match((schema.get("parameters") or {}).get(f"{_COLUMN}type", "")))


def conversion(schema: Mapping[str, Any]) -> Convert | None:
    """What makes of Debezium's value the one of a topic; None: they are the same."""
    if schema["type"] == "ARRAY":
        of_each = conversion(schema["items"])
        return (lambda values: [None if each is None else of_each(each) for each in values]) if of_each else None
    if schema["type"] in ("STRUCT", "MAP"):
        return lambda value: orjson.dumps(value).decode()
    if schema["name"] == _CONNECT_DECIMAL:
        scale = int(schema["parameters"].get("scale", 0))
        return lambda value: decimal_text(value, scale)
    if _is_decimal(schema):
        return lambda value: _SPECIAL.get(value, value)
    return _CONVERSIONS.get(schema["name"] or "")


def _decimal(parameters: Mapping[str, str]) -> str:
    precision, scale = int(parameters.get(f"{_COLUMN}length", 0)), parameters.get(f"{_COLUMN}scale", "0")
    fits = 0 < precision <= _LONGEST_DECIMAL and 0 <= int(scale) <= precision
    return f"decimal({precision},{scale})" if fits else "string"


def decimal_text(value: str, scale: int) -> str:
    """A decimal that came as the bytes of a whole number, which has so many digits behind the point."""
    number = int.from_bytes(base64.b64decode(value), "big", signed=True)
    return f"{Decimal(number).scaleb(-scale, _EXACT):f}"


def day(text: str) -> str:
    """A day; the first or the last there is for one that lies before or after. Debezium takes infinity for a day long ago."""
    if text == _INFINITY:
        return _LAST_DAY
    return _clamped(text, _FIRST_DAY, _LAST_DAY) or text.removesuffix("Z")


def time(text: str) -> str:
    """A time of a column that has no zone."""
    return _clamped(text, _FIRST_TIME, _LAST_TIME) or _short(text.removesuffix("Z"))


def time_in_zone(text: str) -> str:
    return _clamped(text, f"{_FIRST_TIME}Z", f"{_LAST_TIME}Z") or _short(text)


def time_of_day(text: str) -> str:
    return _short(text.removesuffix("Z"))


def _clamped(text: str, first: str, last: str) -> str | None:
    """Years outside of 1 to 9999 have a sign, as infinity may have."""
    if text[:1] == "-":
        return first
    return last if text[:1] in "+i" else None


def _short(text: str) -> str:
    """Fractions of a second without the zeros at their end."""
    found = _FRACTION.search(text)
    if not found:
        return text
    digits = f".{found[1]}" if found[1] else ""
    return f"{text[: found.start()]}{digits}{found[2]}"


_CONVERSIONS: dict[str, Convert] = {
    "io.debezium.time.IsoDate": day,
    "io.debezium.time.IsoTimestamp": time,
    "io.debezium.time.ZonedTimestamp": time_in_zone,
    "io.debezium.time.IsoTime": time_of_day,
}
