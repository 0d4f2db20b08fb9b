"""Pytest fixtures of real servers, asked for in a conftest.py: `pytest_plugins = ["penstock.testing.servers.fixtures"]`."""

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeVar

import pytest

if TYPE_CHECKING:
    from penstock.testing.servers.kafka_broker import KafkaBroker
    from penstock.testing.servers.mariadb import MariaDbServer
    from penstock.testing.servers.opensearch import OpenSearchServer
    from penstock.testing.servers.postgres import PostgresServer
    from penstock.testing.servers.rabbitmq_server import RabbitServer
    from penstock.testing.servers.spark_cluster import SparkCluster
    from penstock.testing.servers.valkey import ValkeyServer


class _Startable(Protocol):
    def start(self) -> None: ...

    def stop(self) -> None: ...


S = TypeVar("S", bound=_Startable)


def missing(reason: str) -> NoReturn:
    """Skips the test: a server cannot be had here. With PENSTOCK_REQUIRE set, as in CI, that is a failure."""
    if os.environ.get("PENSTOCK_REQUIRE"):
        pytest.fail(reason)
    pytest.skip(reason)


def _running(server: S) -> Iterator[S]:
    """The server, started and stopped; the tests that want it are skipped where it cannot be had."""
    from penstock.testing.servers.jars import NotToBeHad

    try:
        server.start()
    except NotToBeHad as error:
        missing(str(error))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[KafkaBroker]":
    """A real Kafka broker, started once for all tests of this process; tests keep apart by the names of their topics."""
    from penstock.testing.servers.kafka_broker import KafkaBroker

    yield from _running(KafkaBroker(tmp_path_factory.mktemp("kafka")))


@pytest.fixture(scope="session")
def rabbitmq_server(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[RabbitServer]":
    """A real RabbitMQ, started once for all tests of this process; tests keep apart by a prefix of names. Who stops it starts it
    again."""
    from penstock.testing.servers.rabbitmq_server import RabbitServer

    yield from _running(RabbitServer(tmp_path_factory.mktemp("rabbitmq")))


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[PostgresServer]":
    """A real PostgreSQL with wal_level=logical, started once for all tests of this process; tests keep apart by the names of their
    tables, publications and slots, and drop their slots."""
    from penstock.testing.servers.postgres import PostgresServer

    yield from _running(PostgresServer(tmp_path_factory.mktemp("postgres")))


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[MariaDbServer]":
    """A real MariaDB that logs rows, started once for all tests of this process; tests keep apart by the names of their
    databases."""
    from penstock.testing.servers.mariadb import MariaDbServer

    yield from _running(MariaDbServer(tmp_path_factory.mktemp("mariadb")))


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[ValkeyServer]":
    """A real Valkey with appendfsync=always, started once for all tests of this process; tests keep apart by the prefixes of their
    keys."""
    from penstock.testing.servers.valkey import ValkeyServer

    yield from _running(ValkeyServer(tmp_path_factory.mktemp("valkey")))


@pytest.fixture(scope="session")
def opensearch(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[OpenSearchServer]":
    """A real OpenSearch, started once for all tests of this process; tests keep apart by the names of their indexes."""
    from penstock.testing.servers.opensearch import OpenSearchServer

    yield from _running(OpenSearchServer(tmp_path_factory.mktemp("opensearch")))


@pytest.fixture(scope="session")
def debezium() -> Iterator[None]:
    """Debezium's engine can be imported."""
    from penstock.testing.servers.debezium import package
    from penstock.testing.servers.jars import NotToBeHad

    try:
        place = str(package())
    except NotToBeHad as error:
        missing(str(error))
    sys.path.append(place)
    yield
    sys.path.remove(place)


@pytest.fixture(scope="session")
def mariadb_jars() -> str:
    """The directory with Debezium's connector for MariaDB."""
    from penstock.testing.servers.debezium import mariadb_jars
    from penstock.testing.servers.jars import NotToBeHad

    try:
        return str(mariadb_jars())
    except NotToBeHad as error:
        return missing(str(error))


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkCluster]":
    """A real Spark cluster of two workers whose own Python has nothing installed, started once for all tests of this process. Who
    kills a worker calls `mend()`."""
    from penstock.testing.servers.spark_cluster import SparkCluster, bare_python

    place = tmp_path_factory.mktemp("cluster")
    yield from _running(SparkCluster(place, python=bare_python(place)))
