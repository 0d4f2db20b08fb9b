"""How a Redis is reached: TLS, Unix sockets, databases."""

import tempfile
from pathlib import Path

import pytest

from penstock.errors import SinkUnavailable
from penstock.sinks import redis
from penstock.sinks.stores.redis.address import Address
from penstock.sinks.stores.redis.resp import Connection
from penstock.testing.servers.valkey import ValkeyServer
from redis_keys import found
from store_epochs import Epochs, spec_of
from tls_front import certificate_in, tls_before

SPEC = spec_of("reached", "id int, name string", "id")


def test_rows_go_over_tls_to_a_server_that_can_prove_who_it_is(valkey: ValkeyServer, tmp_path: Path) -> None:
    certificate = certificate_in(tmp_path)
    with tls_before(valkey.port, certificate) as port:
        Epochs(redis(f"rediss://localhost:{port}/0?ca={certificate}", "tls").build, SPEC).give({"id": 1, "name": "x" * 100_000})
        assert len(found(valkey, "tls")[b"1"][b"name"]) == 100_000
        for stranger in (f"rediss://localhost:{port}/0", f"rediss://127.0.0.1:{port}/0?ca={certificate}"):
            with pytest.raises(SinkUnavailable, match="certificate verify failed"):
                Epochs(redis(stranger, "tls").build, SPEC)


def test_a_socket_in_the_file_system_and_another_database(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as short, ValkeyServer(tmp_path, unixsocket=f"{short}/v.sock") as server:
        url = f"unix://{short}/v.sock?db=3"
        epochs = Epochs(redis(url, "local").build, SPEC)
        epochs.give({"id": 1, "name": "ann"})
        assert server.ask("EXISTS", "local:1") == 0, "it is another database"
        connection = Connection(Address.of(url))
        assert connection.ask("HGET", "local:1", "name") == b"ann"
        connection.close()


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("redis://", ("localhost", 6379, 0, None, False)),
        ("valkey://cache/2", ("cache", 6379, 2, None, False)),
        ("rediss://ann%40shop@cache:7000?db=4", ("cache", 7000, 4, "ann@shop", True)),
        ("valkeys://[::1]:7000/0", ("::1", 7000, 0, None, True)),
    ],
)
def test_what_a_url_says(url: str, where: tuple[object, ...]) -> None:
    found = Address.of(url)
    assert (found.host, found.port, found.database, found.user, found.tls) == where
