"""`penstock cdc reconcile`, a new snapshot, and the line of a live terminal, against a real PostgreSQL."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.cdc_shop import PENSTOCK, Shop
from penstock.capture.definition import CaptureDefinition
from penstock.capture.port import Engine
from penstock.capture.postgres.kind import PostgresKind
from penstock.storage.port import Storage
from penstock.testing.servers.postgres import PostgresServer
from reconciled import Erring, without
from unit.cli.calling import calls_of
from waiting import until

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def shop(postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    made = Shop(postgres, tmp_path / "home")
    yield made
    made.remove()


def test_a_difference_is_named_unhealthy_and_repaired(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.add()
    right = PostgresKind.open

    def forgetful(kind: PostgresKind, definition: CaptureDefinition, storage: Storage) -> Engine:
        return Erring(right(kind, definition, storage), without(7))

    with monkeypatch.context() as patched:
        patched.setattr(PostgresKind, "open", forgetful)
        shop.catch_up()
    found = shop.call("reconcile", shop.name, "--output", "jsonl")
    assert found.code == 4
    assert "NOT EQUAL, 1 keys differ: 100 rows of 2 tables compared in " in found.err
    users = {row["table"]: row for row in found.rows}[f"{shop.name}.users"]
    assert (users["equal"], users["missing"], users["rows"], users["log_rows"]) == (False, 1, 100, 99)
    assert users["differences"] == [{"kind": "missing", "key": '{"id":7}', "columns": []}]
    assert f'  {shop.name}.users {{"id":7}} is missing\n' in shop.call("reconcile", shop.name, "--output", "table").err
    assert shop.call("reconcile", shop.name, "--tables", f"{shop.name}.orders").code == 0, "which has no difference"
    repaired = shop.call("reconcile", shop.name, "--repair")
    assert (repaired.code, "equal after 1 records were written" in repaired.err) == (0, True)
    equal = shop.call("reconcile", shop.name)
    assert (equal.code, equal.err.splitlines()[-1].startswith("equal: 100 rows of 2 tables compared in ")) == (0, True)


def test_after_a_lost_slot_a_new_snapshot_writes_what_differs_and_no_more(shop: Shop) -> None:
    shop.add()
    shop.catch_up()
    shop.server.execute(
        f"select pg_drop_replication_slot('{shop.slot}'); delete from {shop.name}.users where id = 5;"
        f"update {shop.name}.users set name = 'other' where id = 7; insert into {shop.name}.users values (1000, 'new')"
    )
    assert shop.catch_up().code == 1
    answer = shop.call("run", shop.name, "--resnapshot", "--catch-up")
    assert answer.code == 0
    assert f"{shop.name}: 100 rows compared, 3 records written where the topics differed\n" in answer.err
    assert shop.rows("users") == 100 + 4, "a delete has a tombstone"
    assert shop.call("reconcile", shop.name).code == 0
    assert shop.call("remove", shop.name, "--yes").code == 0
    assert shop.left() == []


def test_after_a_dropped_publication_adding_its_tables_again_makes_it_and_loses_nothing(shop: Shop) -> None:
    shop.add()
    shop.catch_up()
    shop.server.execute(
        f"drop publication {shop.slot}; delete from {shop.name}.users where id = 5; "
        f"insert into {shop.name}.users values (1000, 'new')"
    )
    stopped = shop.catch_up()
    assert (stopped.code, f"there is no publication '{shop.slot}'" in stopped.err) == (2, True)
    assert (shop.status().code, f"there is no publication {shop.slot}" in shop.status().err) == (4, True)
    again = shop.call("add", shop.name, "--tables", f"{shop.name}.users,{shop.name}.orders")
    assert (again.code, again.out.startswith(f"create publication {shop.slot} for table ")) == (0, True)
    assert shop.catch_up().code == 0
    assert shop.call("reconcile", shop.name).code == 0


class Terminal:
    """A command on a terminal of so many columns; what it has shown."""

    def __init__(self, columns: int, *words: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        env = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
        self.process = subprocess.Popen([*PENSTOCK, *words], stdin=theirs, stdout=theirs, stderr=theirs, env=env)
        os.close(theirs)
        os.set_blocking(self._ours, False)
        self.text = ""

    @property
    def lines(self) -> list[str]:
        """Every line that stood there once, without what steers a terminal."""
        return [re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line) for line in re.split(r"[\r\n]+", self.text)]

    def shows(self, part: str) -> bool:
        self._read()
        return part in self.text

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        assert until(lambda: self._read() or self.process.poll() is not None)
        self._read()
        os.close(self._ours)
        return self.process.returncode

    def _read(self) -> bool:
        try:
            while data := os.read(self._ours, 65536):
                self.text += data.decode()
        except OSError:  # nothing there now, or nobody there any more
            return False
        return False


def test_a_terminal_shows_one_line_that_fits_and_a_last_one(shop: Shop) -> None:
    shop.server.execute(f"insert into {shop.name}.orders select i, i from generate_series(1, 20000) i; analyze {shop.name}.orders")
    shop.add()
    terminal = Terminal(80, "cdc", "run", shop.name)
    assert until(lambda: terminal.shows(f"{shop.name} · copying {shop.name}.orders ▕"))
    assert until(lambda: terminal.shows("· lag "))
    assert terminal.end() == 0
    assert max(map(len, terminal.lines)) < 80
    assert [line for line in terminal.lines if line][-1].startswith(f"{shop.name}: stopped · 20,100 changes of 2 tables in ")


def test_a_question_is_asked_on_a_terminal_before_anything_is_dropped(shop: Shop) -> None:
    shop.add()
    answer = calls_of("cdc", "remove")(shop.name, given="n\n")
    assert (answer.code, len(shop.left())) == (130, 2)
    assert "drop what it has in the database?" in answer.out
    answer = calls_of("cdc", "remove")(shop.name, given="y\n")
    assert (answer.code, shop.left()) == (0, [])
