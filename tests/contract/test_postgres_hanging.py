"""A PostgreSQL that hangs: behind a line that carries nothing any more nobody waits for ever, and one that is only busy is waited
for."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Self

import pytest
from psycopg import Connection

from penstock.capture.definition import CaptureDefinition
from penstock.capture.kind import kind_of
from penstock.capture.postgres import answering
from penstock.capture.postgres.connecting import connect, connected, translated
from penstock.errors import Disconnected
from penstock.storage.memory import MemoryStorage
from penstock.testing.servers.postgres import PostgresServer
from penstock.testing.waiting import until

PATIENCE = 30.0


class Line:
    """A port that leads to a server, until it is told to hang: then it takes connections, and nothing comes through any more."""

    def __init__(self, target: int) -> None:
        self._target, self._listener = target, socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.carries = threading.Event()
        self.carries.set()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self._open += [client, server]
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=self._carry, args=ends, daemon=True).start()

    def _carry(self, here: socket.socket, there: socket.socket) -> None:
        with suppress(OSError):
            while data := here.recv(65_536):
                if self.carries.is_set():
                    there.sendall(data)
            there.shutdown(socket.SHUT_RDWR)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "SILENCE", 0.5)
    monkeypatch.setattr(answering, "CONNECT_SECONDS", 2)


@pytest.fixture
def line(postgres: PostgresServer) -> Iterator[Line]:
    with Line(postgres.port) as made:
        yield made


def through(line: Line, server: PostgresServer) -> str:
    return server.url.replace(f":{server.port}", f":{line.port}").replace(f"port={server.port}", f"port={line.port}")


def test_a_server_that_takes_a_connection_and_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        definition = CaptureDefinition("shop", "postgres", f"postgresql://me@127.0.0.1:{deaf.getsockname()[1]}/shop", ())
        for engine in ("postgres", "triggers", "poll"):
            (found,) = kind_of(engine).check(definition)
            assert (found.level, found.what.split(" · ")[0]) == ("error", "PostgreSQL cannot be reached")
        with pytest.raises(Disconnected, match="PostgreSQL cannot be reached"):
            kind_of("postgres").open(definition, MemoryStorage()).start(None, None)


def test_a_statement_on_a_server_that_hangs_is_given_up(postgres: PostgresServer, line: Line) -> None:
    with connect(through(line, postgres)) as connection:
        assert connection.execute("select 1").fetchall() == [(1,)]
        line.carries.clear()
        with pytest.raises(Disconnected, match="cannot look: the connection or the server failed") as error, translated("look"):
            connection.execute("select 1")
        assert "said nothing for 0.5 seconds, and answers no other connection" in str(error.value)
        assert connection.closed


def test_a_copy_from_a_server_that_hangs_is_given_up(postgres: PostgresServer, line: Line) -> None:
    def read(connection: Connection[tuple[Any, ...]]) -> None:
        many = b"copy (select repeat('x', 1000) from generate_series(1, 1000000)) to stdout"
        with translated("copy"), connection.transaction(), connection.cursor().copy(many) as copy:
            for number, _ in enumerate(copy):
                if number == 1000:
                    line.carries.clear()

    with connect(through(line, postgres)) as connection, pytest.raises(Disconnected, match="cannot copy"):
        read(connection)


def test_a_server_that_is_busy_is_waited_for(postgres: PostgresServer, line: Line) -> None:
    with connect(through(line, postgres)) as connection:
        asked = time.monotonic()
        assert connection.execute("select 1 from pg_sleep(2)").fetchall() == [(1,)]
        assert time.monotonic() - asked >= 2


def test_an_engine_whose_server_hangs_says_so_and_goes_on_later(postgres: PostgresServer, line: Line) -> None:
    postgres.execute("drop table if exists hanging; create table hanging (id int primary key)")
    definition = CaptureDefinition("hanging", "triggers", through(line, postgres), (("public", "hanging"),), id="hanging")
    kind = kind_of("triggers")
    definition = kind.set_up(definition)
    engine = kind.open(definition, MemoryStorage())
    try:
        engine.start(None, None)
        line.carries.clear()
        with pytest.raises(Disconnected):
            until(lambda: engine.next(0.1) is not None, PATIENCE)
        line.carries.set()
        engine.start(None, None)
        assert until(lambda: engine.next(0.1) is not None, PATIENCE)
    finally:
        line.carries.set()
        engine.close()
        kind.tear_down(definition)


def test_who_only_looks_does_not_wait_for_a_lock_for_ever(postgres: PostgresServer) -> None:
    postgres.execute("drop table if exists locked; create table locked (id int primary key)")
    with connect(postgres.url) as holding, connected(postgres.url, "test", None, within=0.5) as looking:
        with holding.transaction():
            holding.execute("lock table locked")
            with pytest.raises(Disconnected, match="cannot look: the server has not answered in time"), translated("look"):
                looking.execute("select * from locked")
        assert looking.execute("select * from locked").fetchall() == []
