"""The PostgreSQL that tests start: it keeps its data and its address, however it ends, and ends with the test."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from penstock.testing.servers.fixtures import missing
from penstock.testing.servers.jars import NotToBeHad
from penstock.testing.servers.postgres import PostgresServer
from penstock.testing.waiting import until


@pytest.fixture
def server(tmp_path: Path):
    try:
        with PostgresServer(tmp_path, wal_sender_timeout="2s") as started:
            yield started
    except NotToBeHad as error:
        missing(str(error))


def killed(server: PostgresServer) -> None:
    server.kill()
    server.start()


@pytest.mark.parametrize("end", [PostgresServer.restart, PostgresServer.restart_at_once, killed])
def test_data_and_address_stay_however_it_ends(server: PostgresServer, end: Callable[[PostgresServer], None]) -> None:
    server.execute("create table kept (id int primary key); insert into kept values (1)")
    url = server.url
    end(server)
    assert (server.url, server.execute("select id from kept")) == (url, [(1,)])


def test_it_logs_for_logical_decoding_and_takes_settings(server: PostgresServer) -> None:
    assert server.execute("show wal_level") == [("logical",)]
    assert server.execute("show wal_sender_timeout") == [("2s",)]


def test_a_frozen_server_keeps_its_connections(server: PostgresServer) -> None:
    import psycopg

    with psycopg.connect(server.url) as connection:
        server.freeze()
        server.thaw()
        assert connection.execute("select 1").fetchone() == (1,)


def test_it_does_not_outlive_the_process_that_started_it(tmp_path: Path, postgres: PostgresServer) -> None:
    code = (
        "import pathlib, sys; from penstock.testing.servers.postgres import PostgresServer\n"
        "server = PostgresServer(pathlib.Path(sys.argv[1])); server.start()\n"
        "print(server.process.pid, server.place, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, stdin=subprocess.PIPE) as child:
        assert child.stdout
        pid, place = child.stdout.readline().decode().split()
        os.kill(child.pid, signal.SIGKILL)
    assert until(lambda: _ended(int(pid)), 30)
    shutil.rmtree(place)


def _ended(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
