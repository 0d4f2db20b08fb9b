"""Real databases that are killed while a sink writes, and drivers that meet there; bugs that must be found out. (G37)"""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from faults.seeds import SEED
from penstock.core.change import Op
from penstock.errors import SinkUnavailable
from penstock.sinks.stores.sink import POINTS
from penstock.testing.contracts.sink import EPOCHS, SPEC, delivery, staged_epochs
from penstock.testing.servers.fixtures import missing
from penstock.testing.servers.jars import NotToBeHad
from penstock.testing.servers.mariadb import MariaDbServer
from penstock.testing.servers.postgres import PostgresServer
from store_epochs import Build, Epochs
from store_kinds import SERVED, at_server
from waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.parametrize("kind", SERVED)]

CHANGING = replace(SPEC, updating=True)
ROWS = 300
MORTAL: dict[str, Callable[[Path], PostgresServer | MariaDbServer]] = {
    "postgres": PostgresServer,
    "mariadb": lambda place: MariaDbServer(place, innodb_flush_log_at_trx_commit="2"),  # what is committed outlives the process
}
WAITING = {
    "postgres": "select 1 from pg_locks where not granted",
    # innodb_trx would not do: it is cached for as long as somebody keeps asking
    "mariadb": "select 1 from information_schema.global_status where variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS' "
    "and variable_value > 0",
}


class Database:
    """A server of the test's own, and the table there."""

    def __init__(self, kind: str, place: Path) -> None:
        self.kind, self.place, self.server = kind, place, MORTAL[kind](place)
        self.server.start()
        at_server(place, self.server)

    @property
    def build(self) -> Build:
        return SERVED[self.kind].define(self.place).build

    def whole(self, epoch: int) -> bool:
        """Whether the table holds exactly this epoch."""
        rows = [(row["id"], row["text"]) for row in SERVED[self.kind].read(self.place).to_pylist()]
        return sorted(rows) == [(i, str(epoch)) for i in range(ROWS) if i % 5 != epoch % 5]


@pytest.fixture
def database(kind: str, tmp_path: Path) -> Iterator[Database]:
    try:
        made = Database(kind, tmp_path)
    except NotToBeHad as error:
        missing(str(error))
    yield made
    made.server.stop()


def changes_of(epoch: int) -> tuple[list[dict[str, Any]], list[Op]]:
    """In every epoch all keys get its number, and a fifth of them go."""
    rows = [{"id": i, "text": str(epoch)} for i in range(ROWS)]
    return rows, [Op.DELETE if i % 5 == epoch % 5 else Op.INSERT for i in range(ROWS)]


def give_all(epochs: Epochs, database: Database, count: int, before: Callable[[], None] = lambda: None) -> None:
    """Delivers so many epochs, as the engine does: after a failure it opens the sink and gives what it lacks."""
    while epochs.last < count - 1:
        before()
        with suppress(SinkUnavailable):
            rows, ops = changes_of(epochs.last + 1)
            epochs.storage.files.pop(f"{epochs.last + 1}.arrow", None)
            epochs.give(*rows, ops=ops)
            continue
        while not opened_again(epochs, database):  # it may be killed meanwhile, too
            pass


def opened_again(epochs: Epochs, database: Database) -> bool:
    """Whether the server was there long enough to be looked at."""
    server = database.server
    if server.process is None or server.process.poll() is not None:
        server.start()
    with suppress(SinkUnavailable):
        epochs.last = epochs.sink.open("life", 1)
        assert epochs.last < 0 or database.whole(epochs.last), "rows and marker are not of one epoch"
        return True
    return False


@pytest.mark.parametrize("point", POINTS)
def test_a_server_killed_at_any_point_has_each_epoch_whole(point: str, database: Database) -> None:
    passed: list[str] = []

    def kill(name: str) -> None:
        passed.append(name)
        if name == point and passed.count(point) == 2:
            database.server.kill()

    give_all(Epochs(database.build, CHANGING, fail=kill), database, 4)
    assert database.whole(3)
    assert passed.count("store.committed") >= 4


@pytest.mark.parametrize("kills", [3, pytest.param(30, marks=pytest.mark.long)])
def test_a_server_killed_at_any_moment_has_each_epoch_whole(kills: int, database: Database) -> None:
    print(f"PENSTOCK_SEED={SEED}")
    chance, timers, server = random.Random(SEED), list[threading.Timer](), database.server

    def kill_soon() -> None:
        if len(timers) < kills and server.process:
            timers.append(threading.Timer(chance.uniform(0, 0.1), server.process.kill))
            timers[-1].start()

    epochs = Epochs(database.build, CHANGING)
    give_all(epochs, database, kills + 3, kill_soon)
    assert len(timers) == kills
    for timer in timers:
        timer.join()
    server.restart()
    assert database.whole(epochs.last)


def overtaken(kind: str, place: Path, server: Any) -> int:
    """A driver is about to commit epoch 0 when its successor starts: the epoch that the successor finds."""
    found: list[int] = []

    def take_over() -> None:
        new = SERVED[kind].make(place, SPEC, staged_epochs(EPOCHS))
        found.append(new.open("life", 2))
        new.close()

    successor = threading.Thread(target=take_over)

    def fail(point: str) -> None:
        if point == "store.marker":
            successor.start()
            assert until(lambda: not successor.is_alive() or bool(server.execute(WAITING[kind])))

    old = SERVED[kind].make(place, SPEC, staged_epochs(EPOCHS), fail)
    old.open("life", 1)
    old.deliver(delivery(0))
    successor.join()
    old.close()
    return found[0]


def test_a_successor_waits_for_a_commit_that_is_under_way(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue(kind)
    assert overtaken(kind, at_server(tmp_path, server), server) == 0


def test_a_marker_that_is_not_locked_is_found_out(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = request.getfixturevalue(kind)
    real = {"postgres": "psycopg.Connection.execute", "mariadb": "pymysql.cursors.Cursor.execute"}[kind]
    execute = resolve_name(real)

    def unlocked(self: Any, query: Any, *rest: Any) -> Any:
        text = query if isinstance(query, str | bytes) else query.as_string(self)
        return execute(self, text.replace(" FOR UPDATE", "") if isinstance(text, str) else text, *rest)

    monkeypatch.setattr(real, unlocked)
    assert overtaken(kind, at_server(tmp_path, server), server) == -1
