"""A real MariaDB for tests: one server on loopback that logs rows, its data in a directory of the test.

    with MariaDbServer(tmp_path) as server:
        server.execute("create table shop.users (id int primary key)")

It can be stopped, killed, frozen and started again with its data and under its address. Its programs are those of Debian's packages
mariadb-server-core and mariadb-client-core."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from penstock.testing.servers.jars import NotToBeHad, once
from penstock.testing.servers.ordinary import give_away, not_as_root, place_for, while_this_lives
from penstock.testing.servers.processes import PATIENCE, Server

PROGRAMS = ("/usr/sbin",)
# Tests kill processes and never the machine, so nothing needs to reach the disk.
SETTINGS = {
    "bind-address": "127.0.0.1",
    "server-id": "1",
    "log-bin": "binlog",
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "binlog-row-metadata": "FULL",
    "gtid-strict-mode": "1",
    "character-set-server": "utf8mb4",
    "innodb-flush-log-at-trx-commit": "0",
    "innodb-buffer-pool-size": "64M",
    "default-time-zone": "+00:00",
}
_USER = """\
set sql_log_bin = 0;
create user if not exists '{user}'@'%' identified by '{password}';
grant select, reload, show databases, replication slave, binlog monitor, lock tables on *.* to '{user}'@'%';
"""


class MariaDbServer(Server):
    """The server of `place`, with these settings beside or instead of SETTINGS. Started by `with`, or by `start()` and ended by
    `stop()`. NotToBeHad, with the reason, if there are no programs or no start."""

    called = "MariaDB"
    ports_needed = 1
    user, password = "penstock", "hidden"  # may follow, and see the tables of every database

    def __init__(self, place: Path, **settings: str) -> None:
        super().__init__(place_for(self, place, "mariadb"))
        self._settings = settings

    def url(self, database: str, user: str = user) -> str:
        """`root` may do everything, without a password."""
        return f"mariadb://{user}@{self.address}/{database}"

    @property
    def socket(self) -> Path:
        return self.place / "data" / "socket"

    def start(self) -> None:
        _program("mariadb")
        self._start(self._begin)

    def execute(self, sql: str, database: str = "") -> list[list[str]]:
        """What the statements, in a connection of their own, give: rows of texts."""
        done = self._client(sql, database)
        if done.returncode:
            raise RuntimeError(f"MariaDB does not take it: {done.stderr}")
        return [line.split("\t") for line in done.stdout.splitlines()]

    def _client(self, sql: str, database: str) -> "subprocess.CompletedProcess[str]":
        where = ["--no-defaults", "--protocol=tcp", "-h127.0.0.1", f"-P{self.port}", "-uroot", "--batch", "--skip-column-names"]
        command = [_program("mariadb"), *where, "--default-character-set=utf8mb4", *([database] if database else [])]
        return subprocess.run(command, input=sql, capture_output=True, text=True, timeout=PATIENCE, check=False)

    def _begin(self, first: bool) -> "subprocess.Popen[bytes]":
        data = self.place / "data"
        if first:
            shutil.rmtree(data, ignore_errors=True)
            shutil.copytree(_template(), data)
            give_away(data)
        settings = {**SETTINGS, **{name.replace("_", "-"): value for name, value in self._settings.items()}}
        options = [f"--init-file={data}/init.sql", *(f"--{name}={value}" for name, value in settings.items())]
        (data / "init.sql").write_text(_USER.format(user=self.user, password=self.password))
        files = [f"--datadir={data}", f"--socket={self.socket}", f"--pid-file={data}/pid", f"--port={self.port}"]
        before = not_as_root(self.called, *while_this_lives("TERM"))
        return self._launch([*before, _program("mariadbd"), "--no-defaults", *files, *options])

    def _answers(self) -> bool:
        return not self._client("select 1", "").returncode


def _template() -> Path:
    """A data directory in which a user may follow everything."""
    return once(f"mariadb-{_version()}-formatted", _format) / "data"


def _version() -> str:
    said = subprocess.run([_program("mariadbd"), "--no-defaults", "--version"], capture_output=True, text=True, check=False).stdout
    return "".join(c if c.isalnum() or c in ".-" else "-" for c in said.partition("Ver ")[2].split(" ")[0])


def _format(place: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-mariadb-") as scratch:
        give_away(Path(scratch))
        options = [f"--datadir={scratch}/data", "--auth-root-authentication-method=normal", "--skip-test-db"]
        command = [*not_as_root(MariaDbServer.called), _program("mariadb-install-db"), "--no-defaults", *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=scratch)
        if done.returncode:
            raise NotToBeHad(f"MariaDB's data directory cannot be made: {done.stdout[-300:]}{done.stderr[-300:]}")
        shutil.copytree(f"{scratch}/data", place / "data")


def _program(name: str) -> str:
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *PROGRAMS]))
    if found is None:
        raise NotToBeHad(f"there is no {name} here (Debian: apt-get install mariadb-server-core mariadb-client-core)")
    return found
