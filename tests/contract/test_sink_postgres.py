"""A table of a real PostgreSQL as a sink: the suite, and what is its own: types, tables that are there, rows that it refuses."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from lost_answers import LostAnswers
from penstock.errors import BadInput, Mismatch, SinkError, SinkUnavailable
from penstock.sinks import postgres as definition_of
from penstock.sinks.port import SinkContext, SinkSpec
from penstock.sinks.stores.sink import POINTS
from penstock.sinks.stores.sql.postgres import PostgresDefinition
from penstock.storage.port import Storage
from penstock.testing.contracts.sink import Crash, CrashAt, Row, SinkContract
from penstock.testing.contracts.sink_changes import ChangesContract, Held
from penstock.testing.servers.postgres import PostgresServer
from stored import EVERY_TYPE, LIFE, Staged


class _OfPostgres:
    """A schema of its own for each place."""

    points = POINTS

    @pytest.fixture(autouse=True)
    def _server(self, postgres: PostgresServer) -> Iterator[None]:
        self.server, self.made = postgres, list[str]()
        yield
        for schema in self.made:
            postgres.execute(f"drop schema if exists {schema} cascade")

    def place(self, directory: Path) -> str:
        self.made.append(f"s{abs(hash(directory))}")
        return self.made[-1]

    def make(self, place: str, spec: SinkSpec, storage: Storage, fail: Callable[[str], None]) -> Any:
        definition = PostgresDefinition(self.server.url, f"{place}.results")
        return definition.build(SinkContext(spec, None, storage, Path(), fail))  # type: ignore[arg-type]

    def held(self, place: str) -> list[Row]:
        return [(i, text) for i, text in self.server.execute(f"select id, text from {place}.results")]


class TestPostgres(_OfPostgres, SinkContract):
    def rows(self, place: str) -> list[Row]:
        return self.held(place)


class TestPostgresAppending(TestPostgres):
    """Rows without a key, so that one that is written twice is there twice."""

    def make(self, place: Any, spec: SinkSpec, storage: Storage, fail: Callable[[str], None]) -> Any:
        return super().make(place, replace(spec, key=()), storage, fail)


class TestPostgresWithChanges(_OfPostgres, ChangesContract):
    def holds(self, place: str) -> Held:
        return dict(self.held(place))


# what is its own


@pytest.fixture
def table(postgres: PostgresServer) -> Iterator[str]:
    """The name of a table in a schema of its own, which is not there yet."""
    schema = f"s{uuid.uuid4().hex[:12]}"
    yield f"{schema}.results"
    postgres.execute(f"drop schema if exists {schema} cascade")


VALUES = [
    {
        "id": 1, "flag": True, "tiny": -128, "small": 32767, "n": -(2**31), "price": Decimal("123456789.125"), "real": 1.5,
        "x": 0.1 + 0.2, "text": "a\tb\nc\\d\r'\"\\N", "raw": b"\x00\xff\\", "day": date(2024, 2, 29),
        "at": datetime(2024, 1, 15, 10, 0, 15, 123456, UTC), "tags": ["x", None, "y\"z"], "place": {"lat": 1.5, "lon": None},
    },
    {"id": 2, "x": float("nan"), "text": ""},
    {"id": 3, "x": float("-inf"), "text": "\\N", "tags": []},
]  # fmt: skip


def test_every_type_comes_out_as_it_went_in(postgres: PostgresServer, table: str) -> None:
    staged = Staged(PostgresDefinition(postgres.url, table), EVERY_TYPE)
    sink = staged.sink()
    sink.deliver(staged.epoch_of(*VALUES))
    sink.close()
    columns = "id, flag, tiny, small, n, price, real, x::text, text, raw, day, at, tags, place"
    first, second, third = postgres.execute(f"select {columns} from {table} order by id")
    wanted = VALUES[0]
    assert first == tuple(str(wanted["x"]) if name == "x" else value for name, value in wanted.items())
    assert (second[7], second[8], second[9]) == ("NaN", "", None)
    assert (third[7], third[8], third[12]) == ("-Infinity", "\\N", [])


def test_rows_that_it_refuses_are_named_and_all_others_are_there(postgres: PostgresServer, table: str) -> None:
    schema = table.partition(".")[0]
    postgres.execute(f"create schema {schema}")
    postgres.execute(f"create table {table} (id bigint primary key, text varchar(5) check (text <> 'no'))")
    staged = Staged(PostgresDefinition(postgres.url, table), "id long, text string")
    sink = staged.sink()
    texts = {n: f"t{n}" for n in range(50)} | {7: "too long", 20: "no", 33: "nul\0"}
    sink.deliver(staged.epoch_of(*({"id": n, "text": text} for n, text in texts.items())))
    assert [n for (n,) in postgres.execute(f"select id from {table} order by id")] == [n for n in range(50) if n not in (7, 20, 33)]
    [(epoch, rows)] = staged.refused
    assert (epoch, [row["id"] for row in rows]) == (0, [7, 20, 33])
    assert "value too long" in rows[0]["__reason"]
    assert "violates check constraint" in rows[1]["__reason"]
    sink.deliver(staged.epoch_of({"id": 7, "text": "short"}))
    sink.close()
    staged.sink(generation=2).close()
    assert len(staged.refused) == 1, "the epoch behind it refused nothing"


def test_rows_refused_before_a_crash_become_dead_letters_at_the_next_start(postgres: PostgresServer, table: str) -> None:
    schema = table.partition(".")[0]
    postgres.execute(f"create schema {schema}")
    postgres.execute(f"create table {table} (id bigint primary key, text text not null)")
    staged = Staged(PostgresDefinition(postgres.url, table), "id long, text string")
    sink = staged.sink(fail=CrashAt("store.committed"))
    with pytest.raises(Crash):
        sink.deliver(staged.epoch_of({"id": 1}, {"id": 2, "text": "b"}))
    assert staged.refused == []
    staged.sink(generation=2).close()
    [(epoch, [row])] = staged.refused
    assert (epoch, row["id"], "null value" in row["__reason"]) == (0, 1, True)
    sink.close()


def test_a_row_that_it_refuses_stops_the_sink_where_that_is_asked_for(postgres: PostgresServer, table: str) -> None:
    staged = Staged(PostgresDefinition(postgres.url, table, on_error="stop"), "id long not null, text string")
    sink = staged.sink()
    with pytest.raises(SinkError, match=r"refuses a row: .*0x00"):
        sink.deliver(staged.epoch_of({"id": 1, "text": "a"}, {"id": 2, "text": "\0"}))
    assert postgres.execute(f"select count(*) from {table}") == [(0,)]
    sink.close()


def test_a_table_that_is_there_must_fit(postgres: PostgresServer, table: str) -> None:
    postgres.execute(f"create schema {table.partition('.')[0]}")
    postgres.execute(f"create table {table} (id bigint, text int)")
    staged = Staged(PostgresDefinition(postgres.url, table), "id long, text string")
    with pytest.raises(SinkError, match="no unique index over the columns that tell rows apart: id"):
        staged.sink()
    postgres.execute(f"alter table {table} add primary key (id)")
    staged.sink().close()  # a text may be what the server reads as a number
    numbers = Staged(PostgresDefinition(postgres.url, table), "id long, text double")
    with pytest.raises(SinkError, match=r"column 'text' of table .* is int4, which does not take text double"):
        numbers.sink()


def test_a_column_that_the_flow_gains_is_added(postgres: PostgresServer, table: str) -> None:
    before = Staged(PostgresDefinition(postgres.url, table), "id long not null, text string")
    sink = before.sink()
    sink.deliver(before.epoch_of({"id": 1, "text": "a"}))
    sink.close()
    after = Staged(PostgresDefinition(postgres.url, table), "id long not null, text string, more decimal(8, 2)")
    sink = after.sink(generation=2)
    sink.deliver(after.epoch_of({"id": 2, "text": "b", "more": Decimal("1.25")}, generation=2))
    sink.close()
    assert postgres.execute(f"select * from {table} order by id") == [(1, "a", None), (2, "b", Decimal("1.25"))]


def test_a_key_that_is_null_is_a_key(postgres: PostgresServer, table: str) -> None:
    staged = Staged(PostgresDefinition(postgres.url, table), "id long, text string", updating=True)
    sink = staged.sink()
    sink.deliver(staged.epoch_of({"id": None, "text": "a"}, {"id": 1, "text": "b"}))
    sink.deliver(staged.epoch_of({"id": None, "text": "c"}))
    assert sorted(postgres.execute(f"select id, text from {table}"), key=str) == [(1, "b"), (None, "c")]
    sink.deliver(staged.epoch_of(gone=[{"id": None, "text": "c"}]))
    assert postgres.execute(f"select id, text from {table}") == [(1, "b")]
    sink.close()


def test_a_key_that_the_table_refuses_may_go(postgres: PostgresServer, table: str) -> None:
    postgres.execute(f"create schema {table.partition('.')[0]}")
    postgres.execute(f"create table {table} (id varchar(5) primary key, text text)")
    staged = Staged(PostgresDefinition(postgres.url, table), "id string, text string", updating=True)
    sink = staged.sink()
    sink.deliver(staged.epoch_of({"id": "short"}, {"id": "too long"}))
    assert [row["id"] for _, rows in staged.refused for row in rows] == ["too long"]
    sink.deliver(staged.epoch_of(gone=[{"id": "too long"}, {"id": "short"}]))
    assert postgres.execute(f"select count(*) from {table}") == [(0,)]
    sink.close()


def test_a_soft_delete_keeps_the_row_and_says_when(postgres: PostgresServer, table: str) -> None:
    definition = PostgresDefinition(postgres.url, table, soft_delete="deleted_at")
    staged = Staged(definition, "id long, text string", updating=True)
    sink = staged.sink()
    sink.deliver(staged.epoch_of({"id": 1, "text": "a"}, {"id": 2, "text": "b"}))
    sink.deliver(staged.epoch_of(gone=[{"id": 1, "text": "a"}]))
    shown = f"select id, deleted_at is not null from {table} order by id"
    assert postgres.execute(shown) == [(1, True), (2, False)]
    sink.deliver(staged.epoch_of({"id": 1, "text": "again"}))
    assert postgres.execute(shown) == [(1, False), (2, False)]
    sink.close()


@pytest.mark.parametrize(("choice", "text"), [("update", "new"), ("ignore", "old")])
def test_a_row_whose_key_is_there_is_updated_or_ignored(choice: Any, text: str, postgres: PostgresServer, table: str) -> None:
    staged = Staged(PostgresDefinition(postgres.url, table, on_conflict=choice), "id long, text string")
    sink = staged.sink()
    sink.deliver(staged.epoch_of({"id": 1, "text": "old"}))
    sink.deliver(staged.epoch_of({"id": 1, "text": "new"}))
    sink.close()
    assert postgres.execute(f"select text from {table}") == [(text,)]


def test_names_are_quoted_and_never_cut(postgres: PostgresServer) -> None:
    hostile = 'x"; drop table y; --'
    staged = Staged(PostgresDefinition(postgres.url, hostile), "select long not null, `from` string", key=["select"])
    sink = staged.sink()
    sink.deliver(staged.epoch_of({"select": 1, "from": "'; drop schema public cascade; --"}))
    sink.close()
    quoted = '"{}"'.format(hostile.replace('"', '""'))
    assert postgres.execute(f"select * from {quoted}") == [(1, "'; drop schema public cascade; --")]
    postgres.execute(f"drop table {quoted}, penstock_marker")
    long = Staged(PostgresDefinition(postgres.url, "results"), f"id long, {'x' * 64} string")
    with pytest.raises(SinkError, match="longer name than PostgreSQL keeps"):
        long.sink()
    with pytest.raises(BadInput, match="is no name of a table"):
        definition_of(postgres.url, "x" * 64)


def test_a_commit_whose_answer_was_lost_is_found_by_its_marker(postgres: PostgresServer, table: str) -> None:
    staged = Staged(PostgresDefinition(postgres.url, table), "id long, text string", key=())
    sink = staged.sink()
    delivery = staged.epoch_of({"id": 1, "text": "a"})
    with LostAnswers(postgres.address) as way:
        url = f"postgresql://postgres@{way.address}/postgres?sslmode=disable&gssencmode=disable"
        through = Staged(PostgresDefinition(url, table), "id long, text string", key=())
        through.storage = staged.storage
        other = through.sink(generation=2)
        way.lose_the_next("COMMIT")
        marked = replace(delivery, marker=replace(delivery.marker, generation=2))
        with pytest.raises(SinkUnavailable):
            other.deliver(marked)
        assert other.open(LIFE, 2) == 0, "the commit went through"
        other.deliver(marked)
        other.close()
    assert postgres.execute(f"select count(*) from {table}") == [(1,)]
    sink.close()


@pytest.mark.parametrize("point", ["store.begun", "store.rows", "store.marker"])
def test_a_driver_that_wakes_up_in_its_epoch_writes_nothing(point: str, postgres: PostgresServer, table: str) -> None:
    """The server has lost its connection meanwhile, and another driver has taken over."""
    staged, passed = Staged(PostgresDefinition(postgres.url, table), "id long, text string"), list[str]()

    def sleep(name: str) -> None:
        passed.append(name)
        if name == point and passed.count(point) == 1:
            others = (
                "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and wait_event = 'ClientRead'"
            )
            postgres.execute(f"{others} and query <> ''")
            new = staged.sink(generation=2)
            new.deliver(replace(delivery, marker=replace(delivery.marker, generation=2)))
            new.close()

    old = staged.sink(fail=sleep)
    delivery = staged.epoch_of({"id": 1, "text": "a"})
    with pytest.raises(SinkUnavailable):
        old.deliver(delivery)
    with pytest.raises(Mismatch):
        old.open(LIFE, 1)
    old.close()
    assert postgres.execute(f"select id, text from {table}") == [(1, "a")]


def test_a_store_that_was_restored_from_a_copy_is_noticed(postgres: PostgresServer, table: str) -> None:
    staged = Staged(PostgresDefinition(postgres.url, table), "id long, text string")
    sink = staged.sink()
    sink.deliver(staged.epoch_of({"id": 1, "text": "a"}))
    sink.deliver(staged.epoch_of({"id": 2, "text": "b"}))
    schema = table.partition(".")[0]
    postgres.execute(f"update {schema}.penstock_marker set epoch = 0")
    with pytest.raises(SinkUnavailable, match="has gone back from epoch 1 to 0"):
        sink.deliver(staged.epoch_of({"id": 3, "text": "c"}))
    assert sink.open(LIFE, 1) == 0
    sink.close()


def test_a_server_that_is_killed_is_unavailable_and_takes_the_epoch_later(tmp_path: Path) -> None:
    with PostgresServer(tmp_path) as server:
        staged = Staged(PostgresDefinition(server.url, "shop.results"), "id long, text string")
        sink = staged.sink()
        for n in range(3):
            delivery = staged.epoch_of({"id": n, "text": "a"})
            server.kill()
            with pytest.raises(SinkUnavailable):
                sink.deliver(delivery)
            with pytest.raises(SinkUnavailable, match=r"table shop\.results of PostgreSQL 127\.0\.0\.1"):
                sink.open(LIFE, 1)
            server.start()
            assert sink.open(LIFE, 1) == n - 1
            sink.deliver(delivery)
        assert server.execute("select count(*) from shop.results") == [(3,)]
        sink.close()


def test_a_password_is_never_shown(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="has a password") as refused:
        definition_of("postgresql://shop:hunter2@db/shop", "sales")
    assert "hunter2" not in str(refused.value)
    with pytest.raises(BadInput, match="must name a secret"):
        definition_of("postgresql://shop@db/shop", "sales", password="hunter2")
    monkeypatch.setenv("SHOP_PASSWORD", "hunter2")
    hidden = definition_of("postgresql://nobody@127.0.0.1:1/shop", "sales", password="env:SHOP_PASSWORD")
    assert "hunter2" not in repr(hidden)
    with pytest.raises(SinkUnavailable) as unreachable:
        Staged(hidden, "id long").sink()
    assert "hunter2" not in str(unreachable.value)
