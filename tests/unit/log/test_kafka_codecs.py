"""Values of Kafka's records: every codec gives back what it was given, and what it cannot read it refuses with a reason."""

import datetime as dt
import decimal
import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from penstock.core.schema import Schema
from penstock.errors import BadInput, BadRow, LogError
from penstock.log.kafka.settings import KafkaSettings
from penstock.log.kafka.values.avro import AvroCodec, avro_schema
from penstock.log.kafka.values.codecs import Codec, JsonCodec, check_codec, codec_of
from penstock.log.kafka.values.registry import RegistryCodec
from penstock.log.port import TopicSpec

SCHEMA = Schema.of(
    "id long, n int, small tinyint, ok boolean, x double, f float, t string, b binary, d date, at timestamp, m decimal(20,4), "
    "a array<long>, s struct<x:int,y:map<string,double>>, k map<string,array<string>>, l map<long,string>"
)
ROW: dict[str, Any] = {
    "id": -(2**62),
    "n": 7,
    "small": -8,
    "ok": True,
    "x": 0.1,
    "f": 0.5,
    "t": 'a "quoted" \0 🦆',
    "b": b"\x00\xff",
    "d": dt.date(2024, 1, 15),
    "at": dt.datetime(2024, 1, 15, 10, 30, 0, 123456, dt.UTC),
    "m": decimal.Decimal("1234567890123456.7891"),
    "a": [1, None],
    "s": {"x": 1, "y": [("k", 1.5), ("n", None)]},
    "k": [("p", ["q", None])],
    "l": [(5, "five")],
}
ROWS = [ROW, dict.fromkeys(ROW), ROW | {"a": [], "k": [], "t": ""}]


class FakeRegistry(http.server.BaseHTTPRequestHandler):
    """As much of a registry as is asked for."""

    schemas: list[str]
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        number = int(self.path.rsplit("/", 1)[1])
        if self.path == "/schemas/ids/77":
            return self._answer(302, {}, {"Location": "http://127.0.0.1:1/elsewhere"})
        if self.path == "/schemas/ids/78":
            return self._answer(200, {"schema": "{}", "schemaType": "PROTOBUF"})
        if not 1 <= number <= len(self.schemas):
            return self._answer(404, {})
        return self._answer(200, {"schema": self.schemas[number - 1]})

    def do_POST(self) -> None:
        self.asked.append(self.path)
        schema = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["schema"]
        if schema not in self.schemas:
            self.schemas.append(schema)
        self._answer(200, {"id": self.schemas.index(schema) + 1, "auth": self.headers.get("Authorization")})

    def _answer(self, code: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        return


@pytest.fixture
def registry() -> Iterator[tuple[KafkaSettings, type[FakeRegistry]]]:
    handler = type("Handler", (FakeRegistry,), {"schemas": [], "asked": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield KafkaSettings.of(f"kafka://127.0.0.1:1?registry=http://127.0.0.1:{server.server_port}"), handler
    server.shutdown()
    server.server_close()
    thread.join()


def rows_of(codec: Codec, values: list[bytes | None], schema: Schema = SCHEMA, gone: set[int] | None = None) -> Any:
    return codec.decode(pa.array(values, pa.binary()), schema, gone or set())


def batch(rows: list[dict[str, Any]] = ROWS, schema: Schema = SCHEMA) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=schema.arrow)


@pytest.fixture(params=["json", "avro", "avro+registry"])
def codec(request: pytest.FixtureRequest, registry: tuple[KafkaSettings, Any]) -> Codec:
    made = codec_of(TopicSpec("orders", schema=SCHEMA, codec=request.param), registry[0], "orders", [SCHEMA])
    assert made is not None
    return made


def test_rows_come_back_as_they_were(codec: Codec) -> None:
    decoded = rows_of(codec, list(codec.encode(batch())))
    assert not decoded.rejected
    assert decoded.table.to_pylist() == ROWS
    assert decoded.table.schema.equals(SCHEMA.arrow)


def test_what_cannot_be_read_is_refused_with_a_reason_and_the_rest_is_read(codec: Codec) -> None:
    [good, *_] = codec.encode(batch())
    assert good is not None
    bad: list[bytes | None] = [
        b"",
        b"nonsense",
        None,
        b"\x00",
        b"\xc3\x01" + b"x" * 8,
        b"\x00\x00\x00\x00\x09x",
        good[:-1],
        good + b"x",
    ]
    decoded = rows_of(codec, [*bad, good])
    assert [r.index for r in decoded.rejected] == list(range(len(bad)))
    assert all(r.reason for r in decoded.rejected)
    assert decoded.kept.tolist() == [len(bad)]
    assert decoded.table.to_pylist() == [ROW]


def test_a_delete_is_read_with_what_it_knows_or_with_nothing(codec: Codec) -> None:
    strict = Schema.of("id long not null, t string not null")
    [value] = codec.encode(batch([dict.fromkeys(ROW) | {"id": 1}]))
    decoded = rows_of(codec, [value, None], strict, {0, 1})
    assert decoded.table.to_pylist() == [{"id": 1, "t": None}, {"id": None, "t": None}]
    assert [r.index for r in rows_of(codec, [value], strict).rejected] == [0]


def test_avro_of_an_older_schema_is_read_with_the_newer_one() -> None:
    older, newer = Schema.of("id long"), Schema.of("id long, t string")
    [value] = AvroCodec("orders", [older]).encode(batch([{"id": 1}], older))
    decoded = rows_of(AvroCodec("orders", [older, newer]), [value], newer)
    assert decoded.table.to_pylist() == [{"id": 1, "t": None}]
    assert rows_of(AvroCodec("orders", [newer]), [value], newer).rejected[0].reason.endswith("its schema is none of the topic's")


def test_any_avro_library_reads_what_was_written() -> None:
    import io

    schema = Schema.of("id long, at timestamp, m decimal(10,2)")
    row = {"id": 1, "at": ROW["at"], "m": decimal.Decimal("1.50")}
    [value] = AvroCodec("orders", [schema]).encode(batch([row], schema))
    assert value is not None
    assert fastavro.schemaless_reader(io.BytesIO(value[10:]), avro_schema(schema, "orders"), None) == row


def test_each_schema_is_asked_for_once(registry: tuple[KafkaSettings, Any]) -> None:
    settings, server = registry
    codec = RegistryCodec("orders", "shop.orders", [SCHEMA], settings)
    values = list(codec.encode(batch()))
    assert server.asked == ["/subjects/shop.orders-value/versions"]
    assert values[0] is not None
    assert values[0][:5] == b"\0\0\0\0\1"
    for _ in range(3):
        assert not rows_of(codec, values).rejected
    assert server.asked[1:] == ["/schemas/ids/1"]


def test_records_of_others_are_read_by_their_own_schema(registry: tuple[KafkaSettings, Any]) -> None:
    import io

    settings, server = registry
    foreign = {"type": "record", "name": "o", "fields": [{"name": "id", "type": "int"}, {"name": "more", "type": "string"}]}
    server.schemas.append(json.dumps(foreign))
    into = io.BytesIO(b"\0\0\0\0\1")
    into.seek(5)
    fastavro.schemaless_writer(into, foreign, {"id": 5, "more": "x"})
    schema = Schema.of("id long, t string")
    decoded = rows_of(RegistryCodec("orders", "orders", [schema], settings), [into.getvalue()], schema)
    assert decoded.table.to_pylist() == [{"id": 5, "t": None}]


def test_a_registry_that_leads_away_or_speaks_otherwise_is_not_followed(registry: tuple[KafkaSettings, Any]) -> None:
    settings, _ = registry
    codec = RegistryCodec("orders", "orders", [SCHEMA], settings)
    with pytest.raises(LogError, match="refuses /schemas/ids/77: 302"):
        rows_of(codec, [b"\0\0\0\0\x4d"])
    assert "no Avro" in rows_of(codec, [b"\0\0\0\0\x4e"]).rejected[0].reason


def test_a_registry_that_is_away_stops_the_read_and_kills_no_row() -> None:
    codec = RegistryCodec("orders", "orders", [SCHEMA], KafkaSettings.of("kafka://127.0.0.1:1?registry=http://127.0.0.1:9"))
    with pytest.raises(LogError, match="cannot be asked"):
        rows_of(codec, [b"\0\0\0\0\1"])
    with pytest.raises(LogError, match="cannot be asked"):
        codec.encode(batch())


def test_the_registrys_password_is_a_reference(registry: tuple[KafkaSettings, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    settings, _ = registry
    monkeypatch.setenv("REGISTRY", "hunter2")
    named = settings.with_options(registry_user="me", registry_password="env:REGISTRY")
    RegistryCodec("orders", "orders", [SCHEMA], named).encode(batch())
    assert "hunter2" not in repr(named)
    monkeypatch.delenv("REGISTRY")
    with pytest.raises(BadInput, match="REGISTRY is not set"):
        RegistryCodec("payments", "payments", [Schema.of("n long")], named).encode(batch([{"n": 1}], Schema.of("n long")))


@pytest.mark.parametrize("ddl", ["x double", "a array<float>", "s struct<x:double>", "m map<string,double>"])
def test_what_json_has_no_form_for_is_refused(ddl: str) -> None:
    schema = Schema.of(ddl)
    nan: dict[str, Any] = {"x": float("nan"), "a": [float("inf")], "s": {"x": float("-inf")}, "m": [("k", float("nan"))]}
    row = {schema.names[0]: nan[schema.names[0]]}
    with pytest.raises(BadRow, match="JSON has no form"):
        JsonCodec("t").encode(batch([row], schema))
    assert len(AvroCodec("t", [schema]).encode(batch([row], schema))) == 1


def test_a_codec_fits_its_topic_or_is_refused() -> None:
    settings = KafkaSettings.of("kafka://127.0.0.1:1")
    for spec in (
        TopicSpec("t", schema=SCHEMA, codec="protobuf"),
        TopicSpec("t", schema=SCHEMA, codec="raw"),
        TopicSpec("t", codec="avro"),
        TopicSpec("t", schema=SCHEMA, codec="avro+registry"),
    ):
        with pytest.raises(BadInput):
            check_codec(spec, settings)
    check_codec(TopicSpec("t", codec="raw"), settings)
