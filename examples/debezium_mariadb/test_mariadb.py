"""The README's changes are there, in their order, whatever is killed while orders come in."""

import os
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from penstock.cli.main import run
from penstock.testing.servers.mariadb import MariaDbServer
from waiting import until

HERE = Path(__file__).parent
PENSTOCK = [sys.executable, "-c", "from penstock.cli.main import main; main()"]
ORDERS = 40


@pytest.fixture
def database(
    mariadb: MariaDbServer, mariadb_jars: str, debezium: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    monkeypatch.setenv("PENSTOCK_DEBEZIUM_JARS", mariadb_jars)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")  # it starts in half the time
    monkeypatch.setenv("FOLLOWER", mariadb.password)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    name = f"shop_{tmp_path.name[-6:].lower()}"
    mariadb.execute(f"create database `{name}`")
    yield name
    mariadb.execute(f"drop database `{name}`")


def typed(server: MariaDbServer, database: str) -> Iterator[list[str]]:
    """The commands of the README about this server."""
    for line in re.findall(r"^\$ penstock (.*)$", (HERE / "README.md").read_text(), re.MULTILINE):
        yield line.replace("mariadb://follower@localhost:3306/shop", server.url(database)).split()


def changes() -> list[str]:
    found: list[str] = runpy.run_path(str(HERE / "changes.py"))["changes"]()
    return found


def test_the_readme_does_what_it_says_through_kills(mariadb: MariaDbServer, database: str) -> None:
    add, copy, follow, remove = typed(mariadb, database)
    mariadb.execute((HERE / "shop.sql").read_text(), database)
    assert run(add) == 0
    assert run(copy) == 0
    mariadb.execute((HERE / "work.sql").read_text(), database)
    assert run(follow) == 0
    told = (HERE / "README.md").read_text().partition("$ python changes.py\n")[2].partition("$")[0]
    assert changes() == told.splitlines()
    killed(mariadb, database)
    assert run(follow) == 0
    orders = [line for line in changes() if line.startswith("c orders") and '"nr":1' in line and len(line.split()[2]) > 9]
    assert [line.split()[2] for line in orders] == [f'{{"nr":{number}}}' for number in range(1000, 1000 + 2 * ORDERS)]
    assert run(remove) == 0


def order(server: MariaDbServer, database: str, first: int) -> None:
    for number in range(first, first + ORDERS):
        server.execute(f"insert into orders values ({number}, 'apple', 1, now(3), null)", database)


def killed(server: MariaDbServer, database: str) -> None:
    """Debezium's process first, which is started again, then the capture as a whole."""
    before = len(changes())
    with subprocess.Popen([*PENSTOCK, "cdc", "run", "store", "--quiet"], stderr=subprocess.DEVNULL) as process:
        order(server, database, 1000)
        assert until(lambda: bool(psutil.Process(process.pid).children()), 60)
        for child in psutil.Process(process.pid).children():
            os.kill(child.pid, signal.SIGKILL)
        order(server, database, 1000 + ORDERS)
        assert until(lambda: len(changes()) > before, 120)
        process.kill()
