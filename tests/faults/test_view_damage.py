"""G27. Whatever happens to the bytes of a view's file: an answer is what was written, or an error that says what to do."""

import contextlib
import datetime as dt
import decimal
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.core.change import Op
from penstock.core.columns import OP, POSITION, TIME
from penstock.core.schema import Schema
from penstock.core.time import NEVER
from penstock.errors import DamagedView, PenstockError
from penstock.sinks.port import Delivery, Marker, SinkSpec
from penstock.sinks.view import ViewSink
from penstock.storage.memory import MemoryStorage
from penstock.testing.contracts.sink import ipc_file
from penstock.views.view import View

SCHEMA = Schema.of(
    "user string, n long, x double, ok boolean, price decimal(12,2), at timestamp, day date, tags array<string>, raw binary"
)
AT, DAY = dt.datetime(2024, 1, 15, 10, tzinfo=dt.UTC), dt.date(2024, 1, 15)
SPECIAL = [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1.5, None]
MISSING = "nobody"
EPOCHS = 6


def row(user: str | None, n: int) -> tuple[Any, ...]:
    price = decimal.Decimal(n) / 4
    values = (n, SPECIAL[n % 7], n % 2 == 0, price, AT + dt.timedelta(seconds=n), DAY, [f"tag-{n}", None], b"\xff" * (n % 3))
    return (user, *(None if n % 11 == 10 else value for value in values), n * 1000, b"%06d" % n)


class Flow:
    """Stands for the flow that writes the view."""

    def __init__(self, views: Path, updating: bool) -> None:
        self.spec = SinkSpec("shop", "sales", SCHEMA, ("user",), updating)
        self.storage, self.epoch = MemoryStorage(), -1
        self.sink = ViewSink(self.spec, views / "sales.db", self.storage)
        self.sink.open("life", 1)

    def deliver(self, rows: Sequence[tuple[Any, ...]], ops: Sequence[Op]) -> None:
        self.epoch += 1
        fields = [*SCHEMA, pa.field(TIME, pa.int64()), pa.field(POSITION, pa.binary())]
        columns = {f.name: pa.array([r[i] for r in rows], f.type) for i, f in enumerate(fields)}
        columns |= {OP: pa.array([int(op) for op in ops], pa.int8())} if self.spec.updating else {}
        name = f"{self.epoch}.arrow"
        self.storage.publish(name, ipc_file(pa.table(columns)))
        marker = Marker("life", 1, self.epoch)
        self.sink.deliver(Delivery(marker, [name], NEVER, {"in": {0: self.epoch}}, self.epoch * 1_000_000))


def write(views: Path, updating: bool, users: int = 12, epochs: int = EPOCHS) -> None:
    """New rows, rows that replace others, and deletes; some rows come in an order that is not their time's."""
    flow = Flow(views, updating)
    for epoch in range(epochs):
        rows, ops = [], []
        for number in range(users):
            user = None if number == 3 else f"user-{number}"
            if epoch == 0 or (number + epoch) % 3 == 0:
                rows.append(row(user, 100 * (epoch if number % 4 else 9 - epoch) + number))
                ops.append(Op.DELETE if updating and epoch and number % 5 == 0 else Op.UPDATE_AFTER if epoch else Op.INSERT)
        flow.deliver(rows, ops)
    flow.sink.close()


Answer = Callable[[View], Any]
ANSWERS: dict[str, Answer] = {
    "rows": lambda view: told(view.rows()),
    "limited": lambda view: told(view.rows(limit=3)),
    "as of": lambda view: told(view.rows(as_of=300_000)),
    "known at": lambda view: told(view.rows(known_at=2)),
    "known at a time": lambda view: told(view.rows(known_at="1970-01-01T00:00:03Z")),
    "where": lambda view: told(view.rows(where={"ok": True})),
    "get": lambda view: [str(view.get(f"user-{n}")) for n in range(12)],
    "get null": lambda view: str(view.get(None)),
    "get missing": lambda view: view.get(MISSING),
    "history": lambda view: told(view.history("user-1")),
    "changes": lambda view: [told(part) for part in view.changes(2)[1:]],
    "count": lambda view: view.count(),
    "meta": lambda view: view.meta,
    "progress": lambda view: view.progress,
    "empty": lambda view: view.why_empty(),
}


def told(table: pa.Table) -> list[str]:
    return [str(line) for line in table.to_pylist()]


def answers(views: Path) -> dict[str, Any]:
    with View(views, "sales") as view:
        return {name: ask(view) for name, ask in ANSWERS.items()}


@pytest.fixture(scope="module", params=[False, True], ids=["append-only", "updating"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    views = tmp_path_factory.mktemp("views")
    write(views, request.param)
    return views


class Attack:
    """A view whose bytes can be changed, again and again."""

    def __init__(self, written: Path, place: Path) -> None:
        self.right, self.place = answers(written), place
        self.bytes = (written / "sales.db").read_bytes()
        self.errors = 0

    def damaged(self, content: bytes) -> None:
        """Every question is asked anew; what is answered must be right, and nothing but our own errors may come out."""
        (self.place / "sales.db").write_bytes(content)
        for left in self.place.glob("sales.db-*"):
            left.unlink()
        for name, ask in ANSWERS.items():
            try:
                with View(self.place, "sales") as view:
                    found = ask(view)
            except PenstockError:
                self.errors += 1
                continue
            assert found == self.right[name], name

    def flips(self, seed: int, count: int) -> None:
        chance = random.Random(seed)
        for _ in range(count):
            at = chance.choice(self.used) if chance.random() < 0.8 else chance.randrange(len(self.bytes))
            flipped = bytearray(self.bytes)
            flipped[at] ^= 1 << chance.randrange(8)
            self.damaged(bytes(flipped))

    @property
    def used(self) -> list[int]:
        """Where something stands: most of a page is empty."""
        return [at for at, byte in enumerate(self.bytes) if byte]


@pytest.fixture
def attack(written: Path, tmp_path: Path) -> Attack:
    return Attack(written, tmp_path)


def test_the_attack_finds_nothing_wrong_with_what_was_not_damaged(attack: Attack) -> None:
    attack.damaged(attack.bytes)
    assert attack.errors == 0


def test_a_flipped_bit_is_never_served_as_data(attack: Attack) -> None:
    attack.flips(1, 40)
    assert attack.errors > 40


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_thousands_of_flipped_bits_are_never_served_as_data(attack: Attack, seed: int) -> None:
    attack.flips(seed, 300)


@pytest.mark.parametrize("count", [12, pytest.param(300, marks=pytest.mark.long)])
def test_zeroed_torn_and_copied_ranges_are_never_served_as_data(attack: Attack, count: int) -> None:
    chance = random.Random(7)
    for _ in range(count):
        at, size = chance.choice(attack.used), chance.choice([1, 2, 4, 8, 64, 512, 4096, 8192])
        at -= at % size if size > 64 else 0
        content = bytearray(attack.bytes)
        other = chance.choice(attack.used) & ~(size - 1)
        content[at : at + size] = chance.choice([bytes(size), b"\xff" * size, attack.bytes[other : other + size]])[
            : len(content) - at
        ]
        attack.damaged(bytes(content))
    for size in range(0, len(attack.bytes), len(attack.bytes) // 10):
        attack.damaged(attack.bytes[:size])


@contextlib.contextmanager
def changed(path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


OLDER = """UPDATE current SET (n, x, ok, price, at, day, tags, raw, __t, __pos, __since, __crc) =
    (SELECT n, x, ok, price, at, day, tags, raw, __t, __pos, __since, __crc & 4294967295 FROM history h
     WHERE h.user = current.user AND NOT __deleted LIMIT 1) WHERE user = 'user-1'""".replace("__pos", POSITION)
LIES = {
    "a value": "UPDATE current SET n = n + 1 WHERE user = 'user-1'",
    "a null": "UPDATE current SET n = NULL WHERE user = 'user-1'",
    "a sign": "UPDATE current SET x = -x WHERE user = 'user-1'",
    "an epoch": "UPDATE current SET __since = 0 WHERE user = 'user-1'",
    "an end": "UPDATE history SET __until = __until + 1 WHERE user = 'user-1'",
    "a delete": "UPDATE history SET __deleted = 1 - __deleted WHERE user = 'user-1'",
    "a missing row": "DELETE FROM current WHERE user = 'user-1'",
    "a missing version": "DELETE FROM history WHERE user = 'user-1'",
    "an older row": OLDER,
    "a row without a checksum": "UPDATE current SET __crc = NULL, n = 1 WHERE user = 'user-1'",
    "a line of the books": "UPDATE marker SET clock = clock + 1",
    "a lost epoch": "DELETE FROM marker WHERE epoch = (SELECT max(epoch) FROM marker)",
    "its description": "UPDATE meta SET value = '\"other\"' WHERE name = 'flow'",
    "its tables": "CREATE INDEX more ON current (n)",
}


@pytest.mark.parametrize("lie", LIES)
def test_what_sqlite_takes_for_whole_is_found_too(lie: str, written: Path, tmp_path: Path) -> None:
    shutil.copy(written / "sales.db", tmp_path / "sales.db")
    with changed(tmp_path / "sales.db") as connection:
        connection.execute(LIES[lie])
    with pytest.raises(DamagedView, match="view 'sales' is damaged") as found, View(tmp_path, "sales") as view:
        view.check()
    assert "penstock view drop sales" in str(found.value)
    if LIES[lie] != OLDER:  # a whole row of an earlier epoch: found where the view is read whole
        Attack(written, tmp_path).damaged((tmp_path / "sales.db").read_bytes())


def old(path: Path) -> None:
    """The file as version 0.1.0 wrote it: format 1, without checksums."""
    with changed(path) as connection:
        for table, column in (("current", "__crc"), ("history", "__crc"), ("marker", "__crc"), ("marker", "sums")):
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        connection.execute("DELETE FROM meta WHERE name IN ('tables', 'checksum')")
        connection.execute("PRAGMA user_version = 1")


def test_a_view_of_an_older_version_opens_and_gains_checksums_as_rows_are_written(tmp_path: Path) -> None:
    write(tmp_path, True)
    before = answers(tmp_path)
    old(tmp_path / "sales.db")
    assert answers(tmp_path) == before
    with View(tmp_path, "sales") as view:
        versions = view.check().bare
        assert view.check() == (0, versions)
    flow = Flow(tmp_path, True)
    flow.epoch = EPOCHS - 1
    assert answers(tmp_path) == before
    flow.deliver([row("user-1", 4711), row("user-99", 4712)], [Op.UPDATE_AFTER, Op.INSERT])
    with View(tmp_path, "sales") as view:
        assert view.check() == (2, versions)
        assert str(view.get("user-2")) == before["get"][2]
    with changed(tmp_path / "sales.db") as connection:
        connection.execute("UPDATE current SET n = 1 WHERE user = 'user-99'")
    with pytest.raises(DamagedView, match="row user 'user-99'"), View(tmp_path, "sales") as view:
        view.get("user-99")
    flow.sink.close()


def test_the_flow_notices_too_that_the_books_of_its_view_were_damaged(tmp_path: Path) -> None:
    write(tmp_path, False)
    with changed(tmp_path / "sales.db") as connection:
        connection.execute("UPDATE marker SET generation = 0")
    with pytest.raises(DamagedView, match="its line about epoch 5"):
        Flow(tmp_path, False)


def test_a_view_whose_books_are_lost_is_not_taken_for_one_that_was_never_written(tmp_path: Path) -> None:
    write(tmp_path, False)
    with changed(tmp_path / "sales.db") as connection:
        connection.execute("DELETE FROM marker WHERE epoch >= 0")
    sink = ViewSink(SinkSpec("shop", "sales", SCHEMA, ("user",), True), tmp_path / "sales.db", MemoryStorage())
    with pytest.raises(DamagedView, match="that was not the last one"):
        sink.open("another life", 1)
    with changed(tmp_path / "sales.db") as connection:
        assert connection.execute("SELECT count(*) FROM current").fetchone()[0] > 0
