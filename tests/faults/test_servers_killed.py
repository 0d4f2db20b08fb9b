"""Real servers that are killed at every point of a sink and at any moment: rows and marker are of one epoch, and nothing is lost.
(G37)"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faults.server_killed import Victim, killed_at, killed_at_random, numbers
from opensearch_documents import found as documents
from penstock.sinks import opensearch, postgres, redis
from penstock.sinks.stores.sink import POINTS
from penstock.testing.servers.fixtures import missing
from penstock.testing.servers.jars import NotToBeHad
from penstock.testing.servers.opensearch import OpenSearchServer
from penstock.testing.servers.postgres import PostgresServer
from penstock.testing.servers.valkey import ValkeyServer
from redis_keys import found as keys

pytestmark = pytest.mark.faults


def a_postgres(place: Path) -> Victim:
    server = PostgresServer(place, fsync="on")

    def held() -> dict[int, int]:
        import psycopg

        try:
            return dict(server.execute("select id, n from killed"))
        except psycopg.OperationalError as error:
            raise OSError from error

    server.start()
    return Victim(server, postgres(server.url, "killed").build, held)


def a_valkey(place: Path) -> Victim:
    server = ValkeyServer(place)
    server.start()
    return Victim(server, redis(server.url, "killed").build, lambda: numbers(keys(server, "killed"), b"n"))


def an_opensearch(place: Path) -> Victim:
    server = OpenSearchServer(place)
    server.start()

    held = lambda: numbers(documents(server, "killed"), "n")  # noqa: E731
    return Victim(server, opensearch(server.url, "killed").build, held, rows=500, whole=False)


SERVERS: dict[str, Callable[[Path], Victim]] = {"postgres": a_postgres, "valkey": a_valkey, "opensearch": an_opensearch}
SLOW = pytest.param("opensearch", marks=[pytest.mark.long, pytest.mark.timeout(1800)])  # to start again


@pytest.fixture
def victim(name: str, tmp_path: Path) -> Iterator[Victim]:
    """A server of the test's own."""
    try:
        found = SERVERS[name](tmp_path)
    except NotToBeHad as error:
        missing(str(error))
    yield found
    found.server.stop()


@pytest.mark.parametrize("name", ["postgres", "valkey", SLOW])
def test_a_server_killed_at_any_point_has_each_epoch_whole(name: str, victim: Victim) -> None:
    for point in POINTS:
        killed_at(point, victim)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", SERVERS)
def test_a_server_killed_at_some_moments_has_each_epoch_whole(name: str, victim: Victim) -> None:
    killed_at_random(3, victim)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", SERVERS)
def test_a_server_killed_at_thirty_moments_has_each_epoch_whole(name: str, victim: Victim) -> None:
    killed_at_random(30, victim)
