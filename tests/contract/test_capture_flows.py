"""Flows over the tables of a real PostgreSQL, followed while it is written to; and over a capture's topics on a real broker."""

import random
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from captured import Captured, Write
from penstock import Flow, View, read_together
from penstock.capture.definition import CaptureDefinition
from penstock.capture.postgres.kind import PostgresKind
from penstock.capture.runner import CaptureRun
from penstock.capture.transactions import committed
from penstock.engine.run import loop
from penstock.engine.run.driver import Driver
from penstock.engine.run.epoch.open import EpochRequest
from penstock.log.kafka.log import KafkaLog
from penstock.log.kafka.settings import KafkaSettings
from penstock.storage.memory import MemoryStorage
from penstock.testing.servers.kafka_broker import KafkaBroker
from penstock.testing.servers.postgres import PostgresServer
from penstock.testing.waiting import until
from unit.engine.homes import Home

PATIENCE = 60.0
ACCOUNTS, EACH = 5, 100
BANK = ("savings", "checking")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


class Followed:
    """A capture of some tables of a server into a home."""

    def __init__(self, server: PostgresServer, home: Home, *tables: str, **settings: Any) -> None:
        self.server, self.home, self.kind = server, home, PostgresKind()
        defined = CaptureDefinition("shop", "postgres", server.url, tuple(("public", table) for table in tables))
        self.definition = self.kind.set_up(replace(defined, **settings))
        self.storage = MemoryStorage()

    def run(self) -> CaptureRun:
        return CaptureRun(self.definition, self.home.log, self.storage, self.kind.open(self.definition, self.storage))

    def catch_up(self) -> None:
        self.run().run(catch_up=True)


@pytest.fixture
def follow(postgres: PostgresServer, home: Home) -> Iterator[Callable[..., Followed]]:
    made: list[Followed] = []

    def followed(*tables: str, **settings: Any) -> Followed:
        made.append(Followed(postgres, home, *tables, **settings))
        return made[-1]

    yield followed
    for each in made:
        each.kind.tear_down(each.definition)
        postgres.execute("; ".join(f"drop table {table}" for _, table in each.definition.tables))


@contextmanager
def beside(work: Callable[[], object], end: Callable[[], None]) -> Iterator[None]:
    """Runs something in a thread; what it raises is raised."""
    failed: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    try:
        yield
    finally:
        end()
        thread.join(PATIENCE)
    assert not failed, failed


def transfers(url: str, seed: int, count: int) -> None:
    """Moves money between accounts of both tables; now and then it thinks better of it."""
    rng = random.Random(seed)
    with psycopg.connect(url) as connection:
        for _ in range(count):
            for table, change in zip(BANK, rng.sample((-1, 1), 2), strict=True):  # in one order, so that no two wait for each other
                statement = f"update {table} set balance = balance + %s where id = %s"
                connection.execute(statement.encode(), (change * 7, rng.randrange(ACCOUNTS)))
            connection.rollback() if rng.random() < 0.2 else connection.commit()


def rows_of(server: PostgresServer, table: str) -> dict[int, int]:
    with psycopg.connect(server.url) as connection:
        return dict(connection.execute(f"select id, balance from {table}".encode()).fetchall())


def test_views_of_a_database_that_is_written_to_agree_at_every_read(
    postgres: PostgresServer, home: Home, follow: Callable[..., Followed]
) -> None:
    for table in BANK:
        postgres.execute(
            f"create table {table} (id int primary key, balance bigint not null);"
            f"insert into {table} select n, {EACH} from generate_series(0, {ACCOUNTS - 1}) n"
        )
    followed = follow(*BANK)
    followed.catch_up()  # while tables are copied they come one after the other
    flow = Flow("bank")
    for table in BANK:
        flow.table(f"shop.public.{table}").view(table)
    home.run(flow)
    driver, stop, capture = home.driver(flow), threading.Event(), followed.run()
    driver.start()
    sums, epochs = [], set()
    with beside(capture.run, capture.stop), beside(lambda: loop.run(driver, stop, lambda report: None), stop.set):
        writers = [threading.Thread(target=transfers, args=(postgres.url, seed, 60)) for seed in range(2)]
        for writer in writers:
            writer.start()
        with View(home.path / "views", BANK[0]) as savings, View(home.path / "views", BANK[1]) as checking:

            def settled() -> bool:
                epoch, rows = read_together([savings, checking])
                found = {
                    name: dict(zip(*(rows[name].column(c).to_pylist() for c in ("id", "balance")), strict=True)) for name in BANK
                }
                sums.append(sum(sum(of.values()) for of in found.values()))
                epochs.add(epoch)
                done = not any(writer.is_alive() for writer in writers)
                return done and found == {name: rows_of(postgres, name) for name in BANK}

            assert until(settled, PATIENCE)
    driver.release()
    assert set(sums) == {2 * ACCOUNTS * EACH}
    assert len(epochs) > 1
    found = [each for each in committed(home.log, "shop") if not each.id.startswith("snapshot") and each.changes]
    assert all(len(each.changes) == 2 for each in found if sum(map(len, each.changes.values())) == 2)


def test_what_a_table_has_is_read_without_a_word_on_its_columns(
    postgres: PostgresServer, home: Home, follow: Callable[..., Followed]
) -> None:
    postgres.execute(
        "create table things (id bigint, part text, n numeric(10,2), big numeric, at timestamptz, day date, ok boolean,"
        " raw bytea, tags text[], about jsonb, code uuid, real double precision, primary key (id, part));"
        "insert into things values (1, 'a', 12.30, 12345678901234567890.5, '2024-01-15 10:00:00+02', '2024-02-29', true,"
        " '\\xdeadbeef', '{x,null,\"y z\"}', '{\"k\": [1]}', '12345678-1234-1234-1234-123456789abc', 0.1);"
        "insert into things values (2, 'b')"
    )
    followed = follow("things")
    followed.catch_up()
    flow = Flow("things")
    flow.table("shop.public.things").view("things")
    driver = home.run(flow)
    assert driver.last
    assert driver.last.fates["shop.public.things"] == {"in": 2, "dead": 0, "implausible": 0, "passed": 2}
    first, second = home.rows("things")
    assert (str(first["n"]), first["ok"], first["raw"], first["tags"]) == ("12.30", True, b"\xde\xad\xbe\xef", ["x", None, "y z"])
    assert (str(first["at"]), str(first["day"]), first["real"]) == ("2024-01-15 08:00:00+00:00", "2024-02-29", 0.1)
    assert (first["big"], first["about"]) == ("12345678901234567890.5", '{"k": [1]}')
    assert [value for name, value in second.items() if name not in ("id", "part")] == [None] * 10
    postgres.execute(
        "update things set part = 'c' where id = 2; delete from things where id = 1; insert into things values (3, 'd')"
    )
    followed.catch_up()
    home.run(flow)
    assert [(row["id"], row["part"]) for row in home.rows("things")] == [(2, "c"), (3, "d")]
    postgres.execute("truncate things")
    followed.catch_up()
    home.run(flow)
    assert home.rows("things") == []


def test_flat_topics_under_names_of_their_own_are_read_alike(
    postgres: PostgresServer, home: Home, follow: Callable[..., Followed]
) -> None:
    postgres.execute("create table users (id int primary key, name text); insert into users values (123, 'Alice'), (4, 'Bob')")
    followed = follow("users", topics="{name}.{table}", flat=True)
    followed.catch_up()
    flow = Flow("people")
    flow.table("shop.users").view("people")
    home.run(flow)
    assert home.rows("people") == [{"id": 4, "name": "Bob"}, {"id": 123, "name": "Alice"}]
    postgres.execute("delete from users where id = 4; update users set id = 5 where id = 123")
    followed.catch_up()
    home.run(flow)
    assert home.rows("people") == [{"id": 5, "name": "Alice"}]


def test_a_column_that_is_added_while_a_flow_runs_comes_with_its_reset(
    postgres: PostgresServer, home: Home, follow: Callable[..., Followed]
) -> None:
    postgres.execute("create table users (id int primary key, name text); insert into users values (1, 'Alice')")
    followed = follow("users")
    followed.catch_up()

    def flow(name: str) -> Flow:
        made = Flow(name)
        made.table("shop.public.users").view(name)
        return made

    home.run(flow("people"))
    postgres.execute("alter table users add column age int; insert into users values (2, 'Bob', 30)")
    followed.catch_up()
    home.run(flow("people"))
    assert home.rows("people") == [{"id": 1, "name": "Alice"}, {"id": 2, "name": "Bob"}]
    assert "without age, which came later" in home.said[0]
    home.run(flow("all_of_them"))
    assert home.rows("all_of_them") == [{"id": 1, "name": "Alice", "age": None}, {"id": 2, "name": "Bob", "age": 30}]


def test_on_a_broker_too_no_epoch_holds_half_of_a_transaction(kafka_broker: KafkaBroker, home: Home) -> None:
    home.log = KafkaLog(KafkaSettings.of(f"{kafka_broker.url}?prefix=t{uuid.uuid4().hex[:12]}."))  # type: ignore[assignment]
    captured = Captured(home.log, dict.fromkeys(BANK, "id long, balance long"), partitions=2)
    driver: Driver | None = None
    sums = []
    for moved in range(6):
        change = [
            Write(table, "u" if moved else "c", {"id": 1, "balance": EACH + by * moved})
            for table, by in zip(BANK, (-1, 1), strict=True)
        ]
        captured.write(change[:1], ends=False)
        if driver:
            assert driver.epoch() is None
        captured.write(change[1:])
        if moved == 3:
            captured.start()  # which takes offsets of its own on a broker
        if moved in (0, 3):
            flow = Flow("bank")
            for table in BANK:
                flow.table(f"shop.public.{table}").view(table)
            if driver:
                driver.release()
            driver = home.driver(flow)
            driver.start()
        assert driver
        while driver.epoch(EpochRequest(rows=1)):
            sums.append(sum(row["balance"] for table in BANK for row in home.rows(table)))
    assert driver
    driver.release()
    assert sums == [2 * EACH] * 6
    assert [each.id for each in committed(home.log, "shop")] == [f"{700 + n}:{1000 + n}" for n in range(6)]
