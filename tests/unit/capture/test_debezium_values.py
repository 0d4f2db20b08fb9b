"""Values and types of Debezium's records as topics have them."""

import base64
from typing import Any

import pytest

from penstock.capture.debezium.values import conversion, ddl_type, shape_of
from penstock.core.schema import Schema

ISO = "io.debezium.time."
DECIMAL = "org.apache.kafka.connect.data.Decimal"


def schema(kind: str, name: str | None = None, **more: Any) -> dict[str, Any]:
    return {"type": kind, "name": name, **more}


def sql(kind: str, type: str, length: int, scale: int | None = None, name: str | None = None) -> dict[str, Any]:
    told = {"__debezium.source.column.type": type, "__debezium.source.column.length": str(length)}
    told |= {} if scale is None else {"__debezium.source.column.scale": str(scale), "scale": str(scale)}
    return schema(kind, name, parameters=told)


@pytest.mark.parametrize(
    ("told", "ddl"),
    [
        (schema("INT8"), "tinyint"),
        (schema("INT16"), "smallint"),
        (schema("INT32"), "int"),
        (schema("INT64"), "long"),
        (schema("FLOAT32"), "float"),
        (schema("FLOAT64"), "double"),
        (schema("BOOLEAN"), "boolean"),
        (schema("STRING", "io.debezium.data.Json"), "string"),
        (schema("BYTES"), "binary"),
        (schema("STRUCT", "io.debezium.data.geometry.Point"), "string"),
        (schema("STRING", f"{ISO}IsoDate"), "date"),
        (schema("STRING", f"{ISO}IsoTimestamp"), "timestamp"),
        (schema("STRING", f"{ISO}ZonedTimestamp"), "timestamp"),
        (schema("STRING", f"{ISO}IsoTime"), "string"),
        (schema("ARRAY", items=schema("ARRAY", items=schema("INT32"))), "array<array<int>>"),
        (sql("STRING", "NUMERIC", 10, 2), "decimal(10,2)"),
        (sql("STRING", "DECIMAL", 38, 38), "decimal(38,38)"),
        (sql("STRING", "NUMERIC", 131089, 0), "string"),
        (sql("STRING", "NUMERIC", 0), "string"),
        (sql("STRING", "NUMERIC", 2, 4), "string"),
        (sql("STRING", "NUMERIC", 5, -2), "string"),
        (sql("STRING", "VARCHAR", 10, 0), "string"),
        (sql("BYTES", "BIGINT UNSIGNED", 20, 0, DECIMAL), "decimal(20,0)"),
    ],
)
def test_types(told: dict[str, Any], ddl: str) -> None:
    assert ddl_type(told) == ddl
    assert Schema.of(f"x {ddl}").ddl() == f"x {ddl}"


@pytest.mark.parametrize(
    ("told", "given", "value"),
    [
        (schema("STRING", f"{ISO}IsoDate"), "2020-02-03Z", "2020-02-03"),
        (schema("STRING", f"{ISO}IsoDate"), "+20000-01-01Z", "9999-12-31"),
        (schema("STRING", f"{ISO}IsoDate"), "-0043-03-15Z", "0001-01-01"),
        (schema("STRING", f"{ISO}IsoDate"), "-5877611-06-21Z", "9999-12-31"),  # what Debezium makes of infinity
        (schema("STRING", f"{ISO}IsoTimestamp"), "2020-02-03T04:05:06.780Z", "2020-02-03T04:05:06.78"),
        (schema("STRING", f"{ISO}IsoTimestamp"), "2020-02-03T04:05:06Z", "2020-02-03T04:05:06"),
        (schema("STRING", f"{ISO}IsoTimestamp"), "+294247-01-10T04:00:25.2Z", "9999-12-31T23:59:59.999999"),
        (schema("STRING", f"{ISO}ZonedTimestamp"), "2020-02-03T02:05:06.700000Z", "2020-02-03T02:05:06.7Z"),
        (schema("STRING", f"{ISO}ZonedTimestamp"), "2020-02-03T02:05:00.000000Z", "2020-02-03T02:05:00Z"),
        (schema("STRING", f"{ISO}ZonedTimestamp"), "infinity", "9999-12-31T23:59:59.999999Z"),
        (schema("STRING", f"{ISO}ZonedTimestamp"), "-infinity", "0001-01-01T00:00:00Z"),
        (schema("STRING", f"{ISO}IsoTime"), "10:11:12.50Z", "10:11:12.5"),
        (schema("ARRAY", items=schema("STRING", f"{ISO}IsoDate")), ["2020-02-03Z", None], ["2020-02-03", None]),
        (schema("STRUCT"), {"x": 1.5}, '{"x":1.5}'),
        (sql("STRING", "NUMERIC", 10, 2), "1.50", "1.50"),
        (sql("STRING", "NUMERIC", 10, 2), "NAN", "NaN"),
        (sql("BYTES", "BIGINT UNSIGNED", 20, 0, DECIMAL), base64.b64encode(b"\x00" + b"\xff" * 8).decode(), str(2**64 - 1)),
        (sql("BYTES", "DECIMAL", 10, 3, DECIMAL), base64.b64encode(b"\xfe\x0c").decode(), "-0.500"),
    ],
)
def test_values(told: dict[str, Any], given: Any, value: Any) -> None:
    convert = conversion(told)
    assert convert is not None
    assert convert(given) == value


def test_values_that_are_as_topics_have_them_are_not_touched() -> None:
    plain = [schema("INT32"), schema("STRING"), schema("BYTES"), schema("ARRAY", items=schema("INT32"))]
    assert [conversion(each) for each in plain] == [None] * 4
    shape = shape_of({"columns": [["id", plain[0]], ["d", schema("STRING", f"{ISO}IsoDate")]], "key": ["id"]})
    assert shape.row({"id": 1, "d": None}) == {"id": 1, "d": None}
    assert shape.row('{"id": 1, "d": "2020-02-03Z"}') == {"id": 1, "d": "2020-02-03"}
    assert (shape.facts.schema, shape.facts.key) == ("id int, d date", ("id",))
