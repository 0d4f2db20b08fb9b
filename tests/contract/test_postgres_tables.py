"""Tables that come and go while others are followed, heartbeats, what is kept, and transactions larger than memory should hold."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from capture_postgres import PATIENCE, Follow, Followed
from penstock.capture.postgres.engine import Settings
from penstock.errors import Disconnected
from penstock.testing.contracts.capture.records import journal_of
from penstock.testing.servers.postgres import PostgresServer
from penstock.testing.waiting import until

T = "create table t (id int primary key, v text);"


@pytest.fixture
def server(tmp_path: Path, postgres: PostgresServer) -> Iterator[PostgresServer]:
    """One of its own; there is one, as there is another."""
    with PostgresServer(tmp_path, wal_sender_timeout="5s") as made:
        yield made


def test_a_table_that_is_published_later_is_copied_while_others_stream(follow: Follow) -> None:
    of = follow(T)
    of.catch_up()
    of.sql("create table u (id int primary key, v text); insert into u select i, 'old' from generate_series(1, 30) i")
    of.chunks_of(10)
    of.start()
    of.sql(f"alter publication {of.schema} add table u")
    for i in range(1, 31):
        of.sql(f"insert into t values ({i}, 'x'); update u set v = 'new' where id = {i} and id % 2 = 0")
        of.go_on()
    of.catch_up()
    assert {row["id"]: row["v"] for row in of.rows("u")} == {i: "old" if i % 2 else "new" for i in range(1, 31)}
    assert len(of.rows("t")) == 30
    assert sum(op == "u" for op, _ in of.changes("u")) == 15


def test_a_table_that_was_published_while_nobody_followed_is_copied(follow: Follow) -> None:
    of = follow(T + "insert into t values (1, 'x')")
    of.catch_up()
    of.sql(f"create table u (id int primary key, v text); insert into u values (1, 'y'); alter publication {of.schema} add table u")
    of.start().catch_up()
    assert (of.changes("u"), of.changes("t")) == ([("r", {"id": 1, "v": "y"})], [("r", {"id": 1, "v": "x"})])


def test_a_table_that_is_dropped_leaves_the_others_and_is_named(follow: Follow) -> None:
    of = follow(T + "create table u (id int primary key); insert into u values (1)", "t", "u")
    of.catch_up()
    assert of.status.warning is None
    of.sql("drop table u")
    of.sql("insert into t values (1, 'x')")
    of.catch_up()
    assert until(lambda: of.go_on() is None and of.status.warning == f"table {of.schema}.u is not published any more", PATIENCE)
    assert of.rows("t") == [{"id": 1, "v": "x"}]
    of.start().catch_up()
    assert of.status.warning == f"table {of.schema}.u is not published any more"


def test_a_table_that_is_dropped_while_it_is_copied_leaves_the_others(follow: Follow) -> None:
    of = follow(
        T + "create table a (id int primary key); insert into a select generate_series(1, 50); insert into t values (1, 'x')",
        "a",
        "t",
    )
    of.chunks_of(10)
    of.start()
    while not of.batches:
        of.go_on()
    of.sql("drop table a")
    of.catch_up()
    assert of.rows("t") == [{"id": 1, "v": "x"}]
    assert 0 < len(of.rows("a")) < 50


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize(
    "how",
    ["drop table u; create table u (id int primary key, v text)", "alter publication {p} drop table u; delete from u where id = 1"],
)
def test_a_table_that_comes_back_is_emptied_and_copied_again(follow: Follow, how: str, running: bool) -> None:
    of = follow(T + "create table u (id int primary key, v text); insert into u values (1, 'x'), (2, 'y')", "t", "u")
    of.catch_up()
    if not running:
        of.engine.close()  # type: ignore[union-attr]
    of.sql(how.format(p=of.schema))
    if running:
        assert until(lambda: of.go_on() is None and of.status.warning is not None, PATIENCE)
    of.sql(f"insert into u values (3, 'z'); alter publication {of.schema} add table u; insert into u values (4, 'w')")
    if not running:
        of.start()
    of.catch_up()
    there = of.sql("select id, v from u order by id")
    assert sorted((row["id"], row["v"]) for row in of.rows("u")) == there
    assert of.status.warning is None
    of.sql("update u set v = 'last'")
    of.catch_up().start().catch_up()
    assert {row["v"] for row in of.rows("u")} == {"last"}


def test_a_table_that_comes_back_is_emptied_once_though_it_is_killed(follow: Follow) -> None:
    of = follow(T + "create table u (id int primary key, v text); insert into u values (1, 'x'), (2, 'y')", "t", "u")
    of.catch_up()
    of.sql(
        "drop table u; create table u (id int primary key, v text); insert into u values (2, 'z');"
        f"alter publication {of.schema} add table u"
    )
    for point in ("capture.begun", "capture.appended", "capture.ended"):

        def fail(passed: str, point: str = point) -> None:
            if passed == point:
                raise KeyboardInterrupt

        of.fail = fail
        of.start()
        with pytest.raises(KeyboardInterrupt):
            of.catch_up()
    of.fail = lambda point: None
    of.start().catch_up()
    deletes = [row for op, row in of.changes("u") if op == "d"]
    assert (of.rows("u"), deletes) == ([{"id": 2, "v": "z"}], [{"id": 1}, {"id": 2}])


def kept(of: Followed) -> int:
    ((found,),) = of.server.execute(
        "select pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint from pg_replication_slots where slot_name = %s",
        of.schema,
    )
    return int(found)


@pytest.mark.parametrize("heartbeat", [0.05, 1e9])
def test_idle_tables_do_not_hold_the_log_of_a_server_whose_other_tables_are_busy(follow: Follow, heartbeat: float) -> None:
    of = follow(T + "create table busy (id int primary key, v text)")
    of.settings = replace(of.settings, heartbeat=heartbeat)
    of.catch_up()
    of.sql("insert into busy select i, repeat('x', 1000) from generate_series(1, 5000) i")
    assert kept(of) > 1 << 20 or until(lambda: of.go_on() is None and kept(of) < 1 << 16, PATIENCE)
    assert until(lambda: of.go_on() is None and kept(of) < 1 << 16, PATIENCE)
    of.start().catch_up()
    assert of.records("t") == []


def test_a_warning_says_that_the_server_keeps_much_of_its_log(follow: Follow) -> None:
    of = follow(T)
    of.settings = replace(of.settings, max_kept_bytes=1 << 20)
    of.catch_up()
    of.engine.close()  # type: ignore[union-attr]
    of.sql("insert into t select i, repeat('x', 1000) from generate_series(1, 3000) i")
    of.start()
    assert 1 << 20 < (of.status.lag_bytes or 0) < 1 << 24
    of.go_on()
    assert (
        of.status.warning
        == f"the server keeps {(of.status.kept_bytes or 0) / (1 << 20):,.0f} MiB of its log for slot {of.schema}, "
        "more than 1 MiB: its disk may fill up"
    )


def test_the_status_can_be_asked_for_while_the_server_is_away(server: PostgresServer) -> None:
    of = Followed(server, T + "insert into t values (1, 'x')", ["t"])
    of.catch_up()
    assert (of.status.caught_up, of.status.lag_seconds, of.status.snapshots) == (True, 0.0, [])
    server.kill()
    assert of.status.caught_up
    with pytest.raises(Disconnected):
        until(lambda: of.go_on() is not None, PATIENCE)
    assert of.status.kept_bytes is not None
    server.start()
    of.sql("insert into t values (2, 'y')")
    of.start().catch_up()
    assert len(of.rows("t")) == 2
    of.close()


@pytest.mark.parametrize("sent_again", [False, True])
def test_a_transaction_in_several_parts_is_written_once_and_stands_between_one_begin_and_one_end(
    follow: Follow, sent_again: bool
) -> None:
    of = follow(T + "create table u (id int primary key, v text)", "t", "u")
    of.settings = replace(of.settings, batch_bytes=16000)
    of.catch_up()
    of.sql(
        "begin; insert into t select i, repeat('x', 1000) from generate_series(1, 100) i;"
        "insert into u select i, repeat('y', 1000) from generate_series(1, 100) i; truncate u; insert into u values (7, 'z');"
        "update t set v = 'last' where id = 5; commit"
    )
    if sent_again:
        while not any(map(len, of.batches[-1].changes)) or of.position.open_lsn:
            assert until(lambda: of.go_on() is not None, PATIENCE)
            of.start()  # nothing of it was confirmed: it is sent again from its beginning
    of.catch_up()
    parts = [batch for batch in of.batches if any(map(len, batch.changes)) or batch.truncates]
    assert len(parts) > 3
    assert [record.value["after"]["id"] for record in of.records("t")] == [*range(1, 101), 5]
    assert [row["id"] for op, row in of.changes("u") if op == "c"] == [*range(1, 101), 7]
    assert of.rows("u") == [{"id": 7, "v": "z"}]
    (id,) = {record.transaction for record in of.records("t")}
    said = [(each.status, each.events) for each in journal_of(of.log, "shop") if each.id == id and each.status != "PART"]
    assert said == [("BEGIN", None), ("END", 100 + 100 + 100 + 1 + 1)]
    orders = sorted(each.value["transaction"]["total_order"] for name in "tu" for each in of.records(name) if each.value)
    assert orders == list(range(1, 303))


def test_parts_that_were_cut_short_are_made_again(follow: Follow) -> None:
    of = follow(T)
    of.settings = replace(of.settings, batch_bytes=4000)
    of.catch_up()
    of.sql("insert into t select i, repeat('x', 1000) from generate_series(1, 500) i")
    of.sql("insert into t values (501, 'y')")
    left = iter(["capture.begun", "capture.appended", "capture.ended"] * 4)

    def fail(passed: str) -> None:
        nonlocal next_one
        if passed == next_one:
            next_one = next(left, "")
            raise KeyboardInterrupt

    next_one, of.fail = next(left), fail
    of.start()
    while next_one:
        with pytest.raises(KeyboardInterrupt):
            of.catch_up()
        of.start()
    of.catch_up()
    assert [record.value["after"]["id"] for record in of.records("t")] == list(range(1, 502))


def test_settings_have_sound_defaults() -> None:
    assert Settings().max_kept_bytes == 1 << 30
    assert Settings().heartbeat == 10.0
