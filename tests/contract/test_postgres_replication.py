"""The replication connection against a real PostgreSQL: what is followed, what comes again, and what each failure says."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from capture_reference import Change, Ended, Plain, Said, in_order, said_by
from penstock.capture.postgres.connecting import connect
from penstock.capture.postgres.decode.batches import Batcher
from penstock.capture.postgres.decode.messages import LogicalMessage, Truncate
from penstock.capture.postgres.decode.pgoutput import Decoder
from penstock.capture.postgres.slots import create_publication, create_slot, describe_slot, drop_publication, drop_slot
from penstock.capture.postgres.stream.replication import Replication
from penstock.errors import CaptureError, Disconnected, NotFollowable, SlotInUse, SlotLost
from penstock.testing.servers.postgres import PostgresServer
from penstock.testing.waiting import until

PATIENCE = 30.0
NUMBERS = count()


class Source:
    """Two tables of a server, published, with a slot; the names are its own."""

    def __init__(self, server: PostgresServer) -> None:
        self.server, self.name = server, f"capture_{next(NUMBERS)}"
        self.users, self.orders = f"{self.name}_users", f"{self.name}_orders"
        server.execute(
            f"create table {self.users} (id int primary key, name text, bio text);"
            f"create table {self.orders} (id int primary key, amount numeric);"
            f"alter table {self.users} alter bio set storage external"
        )
        with connect(server.url) as connection:
            create_publication(connection, self.name, [("public", self.users), ("public", self.orders)])
            create_slot(connection, self.name)

    def follow(self, url: str | None = None, **options: float) -> Replication:
        """Waits for the server to notice that the last reader is gone."""
        made: list[Replication] = []

        def opened() -> bool:
            try:
                made.append(Replication(url or self.server.url, self.name, [self.name], **options))
            except SlotInUse:
                return False
            return True

        assert until(opened, PATIENCE)
        return made[0]

    def mark(self) -> str:
        """Something that comes behind everything so far."""
        text = f"mark {next(NUMBERS)}"
        self.server.execute("select pg_logical_emit_message(false, %s, 'm')", text)
        return text

    def confirmed(self) -> int | None:
        with connect(self.server.url) as connection:
            found = describe_slot(connection, self.name)
            return found and found.confirmed_lsn

    def remove(self) -> None:
        with connect(self.server.url) as connection:
            assert until(lambda: (found := describe_slot(connection, self.name)) is not None and not found.reader, PATIENCE)
            drop_slot(connection, self.name)
            drop_publication(connection, self.name)


@pytest.fixture
def source(postgres: PostgresServer) -> Iterator[Source]:
    made = Source(postgres)
    yield made
    made.remove()


def until_mark(stream: Replication, mark: str) -> list[bytes]:
    """All messages before the mark."""
    messages: list[bytes] = []
    assert until(lambda: _goes_on(stream, messages) or any(mark.encode() in message for message in messages[-2000:]), PATIENCE)
    return [message for message in messages if not message.startswith(b"M\0")]


def _goes_on(stream: Replication, messages: list[bytes]) -> bool:
    messages += stream.next(0.1)
    return False


def told(stream: Replication, mark: str) -> list[Said]:
    return Plain().decode(until_mark(stream, mark))


def rows_of(server: PostgresServer, table: str) -> set[tuple[str | None, ...]]:
    (columns,) = server.execute(
        "select string_agg(quote_ident(column_name) || '::text', ', ' order by ordinal_position)"
        " from information_schema.columns where table_name = %s",
        table,
    )
    return set(server.execute(f"select {columns[0]} from {table}"))


def folded(said: list[Said], table: str) -> set[tuple[str | None, ...]]:
    """The rows that are left, by the first column; values that were not sent are those that were there before."""
    rows: dict[str, tuple[str | None, ...]] = {}
    for each in said:
        if isinstance(each, Truncate) and each.relation.table == table:
            rows.clear()
        elif isinstance(each, Change) and each.relation.table == table:
            new = each.after and each.after[0]
            old = rows.pop(each.before[0] if each.before else new, None) if each.op != "c" else None
            if each.after:
                rows[new] = tuple(old[i] if old and isinstance(value, tuple) else value for i, value in enumerate(each.after))
    return set(rows.values())


def test_a_workload_comes_out_as_the_reference_folds_it_and_by_columns_the_same(source: Source) -> None:
    users, orders = source.users, source.orders
    with source.follow() as stream, psycopg.connect(source.server.url, autocommit=True) as c:
        c.execute(f"insert into {users} select i, 'n' || i, repeat('x', 5000) from generate_series(1, 30) i")
        c.execute(f"update {users} set name = 'ä''\"\\' || id where id % 3 = 0; update {users} set id = id + 100 where id < 5")
        c.execute(f"update {users} set name = null where id = 7; delete from {users} where id = 8")
        with c.cursor().copy(f"copy {orders} from stdin") as copy:
            for i in range(500):
                copy.write_row((i, i / 4))
        with c.transaction():
            c.execute(f"insert into {orders} values (1001, 1); savepoint a; insert into {orders} values (1002, 2)")
            c.execute(f"rollback to a; insert into {orders} values (1003, 'NaN')")
        with c.transaction(force_rollback=True):
            c.execute(f"delete from {orders}")
        c.execute(f"alter table {users} replica identity full; update {users} set name = 'full' where id < 12")
        c.execute(f"alter table {users} add age int default 30; alter table {users} rename name to called")
        c.execute(f"insert into {users} values (200, 'new', '', 31); alter table {users} drop bio")
        c.execute(f"update {users} set age = age + 1")  # so that every row was sent with its new columns
        messages = until_mark(stream, source.mark())
        said = Plain().decode(messages)
        batcher, decoder = Batcher(), Decoder()
        batcher.add_all(messages)
        assert in_order(said_by(decoder.decode(batcher.take()))) == in_order(said)
        assert batcher.held == 0
        assert folded(said, users) == rows_of(source.server, users)
        assert folded(said, orders) == rows_of(source.server, orders)
        positions = [(each.commit_lsn, each.index) for each in said if isinstance(each, Change)]
        assert len(set(positions)) == len(positions)
        c.execute(f"truncate {users}, {orders} restart identity cascade")
        last = Plain()
        last.relations = {each.relation.oid: each.relation for each in said if isinstance(each, Change)}
        truncates = [each for each in last.decode(until_mark(stream, source.mark())) if isinstance(each, Truncate)]
        assert {each.relation.table for each in truncates} == {users, orders}
        assert [(each.index, each.cascade, each.restart_identity) for each in truncates] == [(0, True, True), (1, True, True)]


def test_values_that_were_not_changed_are_filled_by_the_fold(source: Source) -> None:
    with source.follow() as stream:
        source.server.execute(f"insert into {source.users} values (1, 'a', repeat('x', 9000))")
        source.server.execute(f"update {source.users} set name = 'b'; update {source.users} set id = 2")
        assert folded(told(stream, source.mark()), source.users) == rows_of(source.server, source.users)


def test_messages_of_the_log_come_in_order_with_the_changes(source: Source) -> None:
    with source.follow() as stream:
        with psycopg.connect(source.server.url) as c:
            c.execute(f"insert into {source.orders} values (1, 1)")
            c.execute("select pg_logical_emit_message(true, 'here', 'a')")
            c.execute(f"insert into {source.orders} values (2, 2)")
        said = told(stream, source.mark())
        assert [(each.prefix, each.index) for each in said if isinstance(each, LogicalMessage)] == [("here", 1)]
        assert [each.changes for each in said if isinstance(each, Ended)] == [2]


def test_what_was_not_confirmed_comes_again_and_what_was_confirmed_does_not(source: Source) -> None:
    with source.follow() as stream:
        source.server.execute(f"insert into {source.orders} values (1, 1)")
        source.server.execute(f"insert into {source.orders} values (2, 2)")
        first, second = (each for each in told(stream, source.mark()) if isinstance(each, Ended))
    with source.follow() as stream:
        again = told(stream, source.mark())
        assert [each for each in again if isinstance(each, Ended)] == [first, second]
        stream.confirm(first.end_lsn)
        assert until(lambda: source.confirmed() == first.end_lsn, PATIENCE)
    with source.follow() as stream:
        assert [each for each in told(stream, source.mark()) if isinstance(each, Ended)] == [second]
        passed = stream.passed
        stream.confirm(passed)
        assert until(lambda: source.confirmed() == passed, PATIENCE)
    with source.follow() as stream:
        assert told(stream, source.mark()) == []


def test_a_transaction_of_which_a_part_was_given_out_comes_again_whole_whatever_was_confirmed_before_its_end(
    source: Source,
) -> None:
    source.server.execute(f"insert into {source.orders} values (0, 0)")
    source.server.execute(f"insert into {source.orders} select i, i from generate_series(1, 20000) i")
    with source.follow(bound=50_000) as stream:
        batcher = Batcher()
        assert until(lambda: batcher.add_all(stream.next(0.1)) or batcher.held > 100_000, PATIENCE)
        batcher.take()
        assert batcher.held > 0
        confirmed = stream.passed
        stream.confirm(confirmed)
        assert until(lambda: source.confirmed() == confirmed, PATIENCE)
    with source.follow() as stream:
        said = told(stream, source.mark())
        assert [each.changes for each in said if isinstance(each, Ended)] == [20_000]
        assert all(each.commit_lsn > confirmed for each in said if isinstance(each, Ended))


def test_what_lies_before_the_start_asked_for_does_not_come(source: Source) -> None:
    source.server.execute(f"insert into {source.orders} values (1, 1)")
    source.server.execute(f"insert into {source.orders} values (2, 2)")
    with source.follow() as stream:
        first, second = (each for each in told(stream, source.mark()) if isinstance(each, Ended))
    with source.follow(start=first.end_lsn) as stream:
        assert [each for each in told(stream, source.mark()) if isinstance(each, Ended)] == [second]


def test_a_slow_consumer_keeps_its_connection_and_holds_no_more_than_its_bound(source: Source) -> None:
    patience, bound, rows = 1, 100_000, 100_000
    url = f"{source.server.url}?options={quote(f'-c wal_sender_timeout={patience}s')}"
    heard = "select reply_time > %s::timestamptz + interval '2.5 s' from pg_stat_replication where application_name = %s"
    with source.follow(url, bound=bound) as stream:
        source.server.execute(f"insert into {source.orders} select i, i from generate_series(1, {rows}) i")
        assert until(lambda: stream.held >= bound, PATIENCE)
        ((now,),) = source.server.execute("select clock_timestamp()")
        assert until(lambda: source.server.execute(heard, now, f"penstock {source.name}") == [(True,)], PATIENCE)
        assert stream.held < 2 * bound
        said = told(stream, source.mark())
        assert [each.changes for each in said if isinstance(each, Ended)] == [rows]


def test_an_idle_stream_learns_how_far_the_log_has_come(source: Source) -> None:
    with source.follow() as stream:
        source.server.execute("create table if not exists not_followed (id int); insert into not_followed values (1)")
        mark = source.mark()
        until_mark(stream, mark)
        ((end,),) = source.server.execute("select (pg_current_wal_lsn() - '0/0')::bigint")
        assert until(lambda: stream.next(0.1) == [] and stream.passed >= end, PATIENCE)


def test_a_slot_in_use_says_by_whom(source: Source) -> None:
    with source.follow(), pytest.raises(SlotInUse, match="is read by another process") as error:
        Replication(source.server.url, source.name, [source.name])
    assert f"postgres, penstock {source.name}, from 127.0.0.1" in str(error.value)
    assert "PID" in str(error.value)


def test_a_connection_that_the_server_ends_is_a_passing_error_that_says_why(source: Source) -> None:
    with source.follow() as stream:
        source.server.execute("select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = %s", source.name)
        with pytest.raises(Disconnected, match="the connection or the server failed") as error:
            until(lambda: stream.next(0.1) is None, PATIENCE)
    assert "terminating connection due to administrator command" in str(error.value)


def test_a_slot_or_publication_that_is_missing_stops_it(source: Source) -> None:
    with pytest.raises(SlotLost, match="there is no replication slot 'elsewhere'"):
        Replication(source.server.url, "elsewhere", [source.name])
    with pytest.raises(NotFollowable, match="there is no publication 'elsewhere'"):
        Replication(source.server.url, source.name, ["elsewhere"])


def test_a_closed_stream_gives_nothing_more(source: Source) -> None:
    stream = source.follow()
    stream.close()
    stream.close()
    with pytest.raises(CaptureError, match="is closed"):
        stream.next(0)


def test_a_server_that_lets_nobody_in_is_no_passing_trouble(postgres: PostgresServer) -> None:
    with pytest.raises(NotFollowable, match="cannot be reached"):
        connect(f"postgresql://nobody_here:geheim@{postgres.address}/postgres")
    with pytest.raises(NotFollowable) as error:
        connect("postgresql://u:geheim@[host/db")
    assert "geheim" not in str(error.value)


def test_values_look_the_same_whatever_the_server_prefers(source: Source) -> None:
    server, table = source.server, f"{source.name}_times"
    server.execute(f"create table {table} (id int primary key, at timestamptz, day date, lasts interval, raw bytea, real8 float8)")
    with connect(server.url) as connection:
        create_publication(connection, table, [("public", table)])
    options = "-c DateStyle=German -c TimeZone=Asia/Tokyo -c IntervalStyle=iso_8601 -c bytea_output=escape -c extra_float_digits=0"
    with Replication(f"{server.url}?options={quote(options)}", source.name, [table]) as stream:
        server.execute(
            f"insert into {table} values (1, '2024-01-15 10:00:00.5+00', '2024-01-15', '1 day 2 h', '\\x00ff', 0.1::float8 + 0.2)"
        )
        (change, _) = told(stream, source.mark())
    assert isinstance(change, Change)
    assert change.after == ("1", "2024-01-15 10:00:00.5+00", "2024-01-15", "1 day 02:00:00", "\\x00ff", "0.30000000000000004")
    with connect(server.url) as connection:
        drop_publication(connection, table)


@pytest.fixture
def own(tmp_path: Path, postgres: PostgresServer) -> Iterator[PostgresServer]:
    """A server that may be broken; there is one, as there is another."""
    with PostgresServer(tmp_path, max_slot_wal_keep_size="1MB") as server:
        yield server


def test_a_server_that_restarts_is_a_passing_error_and_nothing_before_it_is_lost(own: PostgresServer) -> None:
    source = Source(own)
    stream = source.follow()
    own.execute(f"insert into {source.orders} values (1, 1)")
    assert until(lambda: stream.held > 0, PATIENCE)
    own.restart_at_once()
    assert [message[:1] for message in stream.next(PATIENCE)] == [b"B", b"R", b"I", b"C"]
    with pytest.raises(Disconnected):
        stream.next(PATIENCE)
    stream.close()
    with source.follow() as stream:
        assert len([each for each in told(stream, source.mark()) if isinstance(each, Change)]) == 1


def test_a_server_that_is_down_or_falls_silent_is_a_passing_error(own: PostgresServer) -> None:
    source = Source(own)
    stream = source.follow(silence=0.3)
    own.freeze()
    with pytest.raises(Disconnected, match=r"the server has said nothing for 0\.3 seconds"):
        until(lambda: stream.next(0.1) is None, PATIENCE)
    own.thaw()
    stream.close()
    own.stop()
    with pytest.raises(Disconnected, match="cannot be reached"):
        Replication(own.url, source.name, [source.name])


def test_a_slot_whose_log_is_gone_stops_it(own: PostgresServer) -> None:
    source = Source(own)
    for _ in range(4):
        own.execute("select pg_logical_emit_message(true, 'more', repeat('x', 1000))")
        own.execute("select pg_switch_wal()")
    own.execute("checkpoint")
    with pytest.raises(SlotLost, match=r"was invalidated \(wal_removed\)"):
        Replication(own.url, source.name, [source.name])
    with connect(own.url) as connection:
        described = describe_slot(connection, source.name)
    assert described is not None
    assert described.lost


def test_another_wal_level_stops_it_with_what_to_do(tmp_path: Path, postgres: PostgresServer) -> None:
    with PostgresServer(tmp_path, wal_level="replica") as server:
        with pytest.raises(NotFollowable, match="wal_level is 'replica'") as error:
            Replication(server.url, "any", [])
        assert "alter system set wal_level = 'logical'" in str(error.value)
        with connect(server.url) as connection, pytest.raises(NotFollowable, match="wal_level is 'replica'"):
            create_slot(connection, "any")
