"""Two databases of real PostgreSQL servers as one sink: the suites, crashes and restarts at every step, rows that one refuses."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lost_answers import LostAnswers
from penstock.errors import BadInput, Mismatch, SinkError, SinkUnavailable
from penstock.sinks import postgres as table_of
from penstock.sinks import sqlite, two_phase
from penstock.sinks.port import SinkContext, SinkSpec
from penstock.sinks.stores.sql import postgres as sql_postgres
from penstock.sinks.stores.sql.postgres import PostgresDefinition
from penstock.sinks.stores.two_phase.definition import marker_name
from penstock.sinks.stores.two_phase.gid import Attempt, Gid
from penstock.sinks.stores.two_phase.sink import POINTS
from penstock.storage.port import Storage
from penstock.testing.contracts.sink import EPOCHS, EVERYTHING, SPEC, Crash, CrashAt, Row, SinkContract, delivery, staged_epochs
from penstock.testing.contracts.sink_changes import ChangesContract, Held
from penstock.testing.servers.postgres import PostgresServer
from stored import EVERY_TYPE, LIFE, Staged
from two_phase_pair import GAPS, Pair, appending, crashed, finished, pair_of, second_database


class _OfTwo:
    """A schema of its own for each place, in both databases."""

    points = POINTS

    @pytest.fixture(autouse=True)
    def _server(self, postgres: PostgresServer) -> Iterator[None]:
        self.urls, self.made = (postgres.url, second_database(postgres)), list[Pair]()
        yield
        for pair in self.made:
            pair.cleared()

    def place(self, directory: Path) -> Pair:
        self.made.append(Pair(self.urls, f"s{abs(hash(directory))}.results"))
        return self.made[-1]

    def make(self, place: Pair, spec: SinkSpec, storage: Storage, fail: Callable[[str], None]) -> Any:
        return place.sink(spec, storage, fail)


class TestTwoPhase(_OfTwo, SinkContract):
    """Rows without a key, so that one that is written twice is there twice."""

    def make(self, place: Pair, spec: SinkSpec, storage: Storage, fail: Callable[[str], None]) -> Any:
        return super().make(place, appending(spec), storage, fail)

    def rows(self, place: Pair) -> list[Row]:
        return place.both()


class TestTwoPhaseWithChanges(_OfTwo, ChangesContract):
    def holds(self, place: Pair) -> Held:
        return dict(place.both())


# what is its own


@pytest.fixture
def pair(postgres: PostgresServer) -> Iterator[Pair]:
    with pair_of([postgres]) as made:
        yield made


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[PostgresServer]]:
    """Two, which the tests may restart."""
    with PostgresServer(tmp_path_factory.mktemp("one")) as one, PostgresServer(tmp_path_factory.mktemp("other")) as other:
        yield [one, other]


@pytest.fixture
def apart(servers: list[PostgresServer]) -> Iterator[Pair]:
    """A database in each of two servers."""
    with pair_of(servers) as made:
        yield made


@pytest.mark.parametrize(("point", "nth"), GAPS)
def test_a_new_driver_finishes_what_was_left_in_both_or_in_none(point: str, nth: int, apart: Pair) -> None:
    crashed(apart, point, nth)
    left = {("two_phase.prepared", 1): [1, 0], ("two_phase.prepared", 2): [1, 1], ("two_phase.committed", 1): [0, 1]}
    assert [len(gids) for gids in apart.prepared()] == left.get((point, nth), [0, 0])
    assert finished(apart, 2) == (0 if (point, nth) == ("two_phase.prepared", 1) else 1)
    assert sorted(apart.both()) == EVERYTHING
    assert apart.prepared() == [[], []]


@pytest.mark.parametrize("restarted", [[0], [1], [0, 1]], ids=["first", "second", "both"])
@pytest.mark.parametrize(("point", "nth"), GAPS)
def test_a_server_that_crashes_in_between_changes_nothing(
    point: str, nth: int, restarted: list[int], servers: list[PostgresServer], apart: Pair
) -> None:
    crashed(apart, point, nth)
    for number in restarted:
        servers[number].restart_at_once()
    assert finished(apart, 2) == (0 if (point, nth) == ("two_phase.prepared", 1) else 1)
    assert sorted(apart.both()) == EVERYTHING


@pytest.mark.parametrize("restarted", [0, 1], ids=["first", "second"])
@pytest.mark.parametrize(("point", "nth"), GAPS)
def test_a_server_that_crashes_under_a_driver_is_away_and_lacks_nothing_in_the_end(
    point: str, nth: int, restarted: int, servers: list[PostgresServer], apart: Pair
) -> None:
    passed: list[str] = []

    def fail(at: str) -> None:
        passed.append(at)
        if at == point and passed.count(at) == nth:
            servers[restarted].restart_at_once()

    sink = apart.sink(appending(SPEC), staged_epochs(EPOCHS), fail)
    has = sink.open(LIFE, 1)
    while has < max(EPOCHS):
        try:
            sink.deliver(delivery(has + 1))
            has += 1
        except SinkUnavailable:
            has = sink.open(LIFE, 1)
            apart.both()
    sink.close()
    assert sorted(apart.both()) == EVERYTHING


def test_while_one_is_away_the_sink_is_away_and_the_other_gets_nothing(servers: list[PostgresServer], apart: Pair) -> None:
    sink = apart.sink(appending(SPEC), staged_epochs(EPOCHS))
    sink.open(LIFE, 1)
    sink.deliver(delivery(0))
    servers[1].kill()
    with pytest.raises(SinkUnavailable):
        sink.deliver(delivery(1))
    with pytest.raises(SinkUnavailable, match=f"PostgreSQL {servers[1].address}"):
        sink.open(LIFE, 1)
    assert len(servers[0].execute(f"select * from {apart.table}")) == len(EPOCHS[0])
    servers[1].start()
    assert sink.open(LIFE, 1) == 0
    sink.close()
    assert finished(apart, 2) == 0
    assert sorted(apart.both()) == EVERYTHING


def test_one_that_was_restored_from_a_copy_gets_alone_what_it_lost(apart: Pair) -> None:
    finished(apart, 1)
    schema, lost = apart.table.partition(".")[0], tuple(row[0] for epoch in (2, 3) for row in EPOCHS[epoch])
    sink = apart.sink(appending(SPEC), staged_epochs(EPOCHS))
    sink.open(LIFE, 2)
    second = Pair((apart.urls[1], apart.urls[1]), apart.table)
    second.query(f"delete from {apart.table} where id in {lost}; update {schema}.penstock_marker set epoch = 1")
    with pytest.raises(SinkUnavailable, match="has gone back from epoch 3 to 1"):
        sink.deliver(delivery(3, 2))
    assert sink.open(LIFE, 2) == 1
    sink.deliver_together([delivery(2, 2), delivery(3, 2)])
    sink.close()
    assert sorted(apart.both()) == EVERYTHING


def test_one_whose_prepared_transaction_was_rolled_back_by_hand_gets_the_epoch_again(apart: Pair) -> None:
    crashed(apart, "two_phase.committed", 1)
    with psycopg.connect(apart.urls[1], autocommit=True) as connection:
        connection.tpc_rollback(apart.prepared()[1][0])
    assert finished(apart, 2) == 0, "the second lacks epoch 1"
    assert sorted(apart.both()) == EVERYTHING


@pytest.mark.parametrize("answer", ["PREPARE TRANSACTION", "COMMIT PREPARED"])
@pytest.mark.parametrize("lost", [0, 1], ids=["first", "second"])
def test_an_answer_that_was_lost_is_settled_by_gid_and_marker(
    answer: str, lost: int, servers: list[PostgresServer], apart: Pair
) -> None:
    with LostAnswers(servers[lost].address) as way:
        through = f"postgresql://postgres@{way.address}/postgres?sslmode=disable&gssencmode=disable"
        urls = (through, apart.urls[1]) if lost == 0 else (apart.urls[0], through)
        tables = [PostgresDefinition(url, apart.table) for url in urls]
        staged = Staged(two_phase(tables), "id long, text string", key=())
        sink = staged.sink()
        given = staged.epoch_of({"id": 1, "text": "a"})
        way.lose_the_next(answer)
        with pytest.raises(SinkUnavailable):
            sink.deliver(given)
        has = sink.open(LIFE, 1)
        assert apart.both() == ([(1, "a")] if has == 0 else []), "both have it, or none"
        assert has == (-1 if (answer, lost) == ("PREPARE TRANSACTION", 0) else 0)
        sink.deliver(given)
        sink.close()
    assert apart.both() == [(1, "a")]


def test_rows_that_one_refuses_are_left_out_of_both_and_named(postgres: PostgresServer, pair: Pair) -> None:
    schema = pair.table.partition(".")[0]
    columns = ("text varchar(5)", "text text check (text <> 'no')")
    for url, text in zip(pair.urls, columns, strict=True):
        Pair((url, url), pair.table).query(f"create schema if not exists {schema}; drop table if exists {pair.table}")
        Pair((url, url), pair.table).query(f"create table if not exists {pair.table} (id bigint primary key, {text})")
    staged = Staged(pair.definition(), "id long, text string")
    sink = staged.sink()
    texts = {n: f"t{n}" for n in range(30)} | {7: "too long", 20: "no", 25: "nul\0"}
    sink.deliver(staged.epoch_of(*({"id": n, "text": text} for n, text in texts.items())))
    assert sorted(n for n, _ in pair.both()) == [n for n in range(30) if n not in (7, 20, 25)]
    [(epoch, rows)] = staged.refused
    assert (epoch, [row["id"] for row in rows]) == (0, [7, 20, 25])
    assert "value too long" in rows[0]["__reason"]
    assert "/second: " in rows[1]["__reason"], "which of them refuses it"
    sink.deliver(staged.epoch_of({"id": 7, "text": "short"}))
    sink.close()
    assert (7, "short") in pair.both()
    staged.sink(generation=2).close()
    assert len(staged.refused) == 1, "the epoch behind it refused nothing"


def test_rows_refused_before_a_crash_become_dead_letters_at_the_next_start(pair: Pair) -> None:
    staged = Staged(pair.definition(), "id long, text string")
    sink = staged.sink(fail=CrashAt("two_phase.prepared", 2))
    with pytest.raises(Crash):
        sink.deliver(staged.epoch_of({"id": 1, "text": "\0"}, {"id": 2, "text": "b"}))
    sink.close()
    assert staged.refused == []
    staged.sink(generation=2).close()
    [(epoch, [row])] = staged.refused
    assert (epoch, row["id"]) == (0, 1)
    assert pair.both() == [(2, "b")]


def test_databases_whose_markers_differ_by_epochs_without_rows_agree_on_the_next(pair: Pair) -> None:
    """Markers alone are committed one after the other; a connection may break in between."""
    staged = Staged(pair.definition(), "id long, text string")
    sink = staged.sink()
    sink.deliver(staged.epoch_of({"id": 1, "text": "a"}))
    sink.close()
    schema = pair.table.partition(".")[0]
    first, second = (Pair((url, url), pair.table) for url in pair.urls)
    first.query(f"update {schema}.penstock_marker set epoch = 1")
    second.query(f"alter table {pair.table} add check (text <> 'bad')")
    sink = staged.sink(generation=2)
    idle = replace(staged.epoch_of(generation=2), files=[])
    sink.deliver_together([idle, staged.epoch_of({"id": 2, "text": "b"}, {"id": 3, "text": "bad"}, generation=2)])
    sink.close()
    assert sorted(pair.both()) == [(1, "a"), (2, "b")]
    [(epoch, rows)] = staged.refused
    assert (epoch, [row["id"] for row in rows]) == (2, [3])


def test_epochs_without_rows_ask_nobody_but_every_eighth(pair: Pair) -> None:
    passed: list[str] = []
    sink = pair.sink(appending(SPEC), staged_epochs(EPOCHS), passed.append)
    sink.open(LIFE, 1)
    for epoch in range(16):
        sink.deliver(delivery(epoch, files=False))
    sink.close()
    assert passed.count("two_phase.begun") == 2


def test_whoever_looks_behind_a_transaction_that_was_left_prepared_is_told(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_postgres, "PATIENCE", "-c lock_timeout=200ms")
    crashed(pair, "two_phase.prepared", 2)
    definition = PostgresDefinition(pair.urls[0], pair.table)
    spec = replace(appending(SPEC), name=marker_name(SPEC.name, definition))
    store = definition.store(SinkContext(spec, None, staged_epochs(EPOCHS), Path()))  # type: ignore[arg-type]
    store.open()
    with pytest.raises(SinkUnavailable, match="lock timeout"), store.transaction() as transaction:
        transaction.note()
    store.close()


def test_a_row_that_one_refuses_stops_the_sink_where_that_is_asked_for(pair: Pair) -> None:
    tables = [PostgresDefinition(url, pair.table, on_error=how) for url, how in zip(pair.urls, ("dead", "stop"), strict=True)]  # type: ignore[arg-type]
    staged = Staged(two_phase(tables), "id long, text string")
    sink = staged.sink()
    with pytest.raises(SinkError, match="refuses a row: "):
        sink.deliver(staged.epoch_of({"id": 1, "text": "a"}, {"id": 2, "text": "\0"}))
    sink.close()
    assert pair.both() == []


def test_many_rows_and_all_types_go_through(pair: Pair) -> None:
    staged = Staged(pair.definition(), EVERY_TYPE, updating=True)
    sink = staged.sink()
    rows = [{"id": n, "text": str(n), "tags": [str(n)]} for n in range(12_000)]
    sink.deliver(staged.epoch_of(*rows))
    sink.deliver(staged.epoch_of(*({**row, "text": "new"} for row in rows[:10]), gone=rows[10:11_000]))
    sink.close()
    held = dict(pair.both())
    assert (len(held), held[3], held[11_500]) == (1_010, "new", "11500")
    left = "select sum(pg_relation_size(c.oid)) from pg_class c where relkind = 'r' and relname ~ '^penstock_(staged|gone)_'"
    assert max(int(str(size)) for [(size,)] in pair.query(left)) < 100_000, "what was staged goes"


def test_two_tables_of_one_schema_are_two(postgres: PostgresServer, pair: Pair) -> None:
    other = pair.table.replace("results", "copies")
    staged = Staged(two_phase([PostgresDefinition(postgres.url, table) for table in (pair.table, other)]), "id long, text string")
    sink = staged.sink()
    sink.deliver(staged.epoch_of({"id": 1, "text": "a"}))
    sink.close()
    assert postgres.execute(f"select * from {pair.table} union all select * from {other}") == [(1, "a"), (1, "a")]
    schema = pair.table.partition(".")[0]
    assert postgres.execute(f"select sink, epoch from {schema}.penstock_marker order by 1") == [
        (f"results/{other}", 0),
        (f"results/{pair.table}", 0),
    ]


def test_a_server_that_prepares_nothing_is_told_what_to_set(tmp_path: Path, pair: Pair) -> None:
    with PostgresServer(tmp_path, max_prepared_transactions="0") as other:
        staged = Staged(two_phase([PostgresDefinition(url, pair.table) for url in (pair.urls[0], other.url)]), "id long")
        with pytest.raises(SinkError, match="max_prepared_transactions is 0") as refused:
            staged.sink()
    assert "ALTER SYSTEM SET max_prepared_transactions" in str(refused.value.hint)


def test_what_another_life_of_the_flow_left_prepared_is_not_touched(pair: Pair) -> None:
    crashed(pair, "two_phase.prepared", 2)
    left = pair.prepared()
    sink = pair.sink(appending(SPEC), staged_epochs(EPOCHS))
    with pytest.raises(Mismatch, match="a prepared transaction of sink results belongs to another incarnation") as refused:
        sink.open("another life", 1)
    assert "penstock doctor --resolve" in str(refused.value.hint)
    assert pair.prepared() == left


def test_a_trigger_that_cannot_be_prepared_is_an_error_that_says_so(pair: Pair) -> None:
    sink = pair.sink(appending(SPEC), staged_epochs(EPOCHS))
    sink.open(LIFE, 1)
    pair.query(
        f"create function {pair.table}_told() returns trigger language plpgsql as $$begin notify told; return null; end$$; "
        f"create trigger told after insert on {pair.table} execute function {pair.table}_told()"
    )
    with pytest.raises(SinkError, match="cannot take an epoch") as refused:
        sink.deliver(delivery(0))
    assert "cannot PREPARE a transaction that has executed LISTEN, UNLISTEN, or NOTIFY" in str(refused.value)
    sink.close()
    assert pair.both() == []


def test_wrong_definitions_are_refused() -> None:
    one, other = table_of("postgresql://a/shop", "sales"), table_of("postgresql://b/shop", "sales")
    assert two_phase([one, other]).target == "sales"
    assert two_phase([one, table_of("postgresql://b/shop", "copies")]).target == "copies-sales"
    with pytest.raises(BadInput, match="needs two tables or more, and has 1"):
        two_phase([one])
    with pytest.raises(BadInput, match="has one table twice"):
        two_phase([one, one])
    with pytest.raises(BadInput, match="cannot write to"):
        two_phase([one, sqlite("shop.db", "sales")])  # type: ignore[list-item]
    with pytest.raises(BadInput, match="differ in key"):
        two_phase([one, table_of("postgresql://b/shop", "sales", key="id")])
    with pytest.raises(BadInput, match="differ in on_conflict"):
        two_phase([one, table_of("postgresql://b/shop", "sales", on_conflict="ignore")])


def test_names_of_transactions_are_read_as_they_were_written_and_fit() -> None:
    gid = Gid.of("f" * 200, "s" * 200, Attempt("0" * 32, 2**31, 2**40, "12345678"), "12345678")
    assert len(str(gid)) < 200
    assert Gid.parsed(str(gid)) == gid
    assert Gid.of("f" * 199 + "g", "s", gid.attempt, "") != Gid.of("f" * 200, "s", gid.attempt, "")
    assert Gid.parsed("penstock:of:somebody") is None
    assert Gid.parsed("1_cXdl_cXdl") is None
