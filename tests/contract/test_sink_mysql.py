"""A table of a real MariaDB as a sink: the suite, and what is its own: types, keys, tables that are there, rows that it refuses."""

import math
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pymysql
import pytest

from lost_answers import LostAnswers
from penstock.errors import BadInput, SinkError, SinkUnavailable
from penstock.sinks import mariadb as definition_of
from penstock.sinks import mysql
from penstock.sinks.port import SinkContext, SinkSpec
from penstock.sinks.stores.sink import POINTS
from penstock.sinks.stores.sql.mysql import MariadbDefinition
from penstock.storage.port import Storage
from penstock.testing.contracts.sink import Crash, CrashAt, Row, SinkContract
from penstock.testing.contracts.sink_changes import ChangesContract, Held
from penstock.testing.servers.mariadb import MariaDbServer
from penstock.testing.servers.ordinary import give_away
from stored import EVERY_TYPE, LIFE, Staged
from tls_front import certificate_in


def asked(server: MariaDbServer, *statements: str) -> list[tuple[Any, ...]]:
    """What the last of them gives, in a connection of their own."""
    how: Any = {"user": "root", "autocommit": True, "ssl_disabled": True}
    with closing(pymysql.connect(host="127.0.0.1", port=server.port, **how)) as connection:
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall())


class _OfMysql:
    """A database of its own for each place."""

    points = POINTS

    @pytest.fixture(autouse=True)
    def _server(self, mariadb: MariaDbServer) -> Iterator[None]:
        self.server, self.made = mariadb, list[str]()
        yield
        for database in self.made:
            asked(mariadb, f"drop database if exists {database}")

    def place(self, directory: Path) -> str:
        self.made.append(f"s{abs(hash(directory))}")
        return self.made[-1]

    def make(self, place: str, spec: SinkSpec, storage: Storage, fail: Callable[[str], None]) -> Any:
        definition = MariadbDefinition(f"{self.server.url('', 'root')}?ssl-mode=DISABLED", f"{place}.results")
        return definition.build(SinkContext(spec, None, storage, Path(), fail))  # type: ignore[arg-type]

    def held(self, place: str) -> list[Row]:
        return [(i, text) for i, text in asked(self.server, f"select id, text from {place}.results")]


class TestMysql(_OfMysql, SinkContract):
    def rows(self, place: str) -> list[Row]:
        return self.held(place)


class TestMysqlAppending(TestMysql):
    """Rows without a key, so that one that is written twice is there twice."""

    def make(self, place: Any, spec: SinkSpec, storage: Storage, fail: Callable[[str], None]) -> Any:
        return super().make(place, replace(spec, key=()), storage, fail)


class TestMysqlWithChanges(_OfMysql, ChangesContract):
    def holds(self, place: str) -> Held:
        return dict(self.held(place))


# what is its own


class Place:
    """A database of the test's own, which is not there yet, and a table in it."""

    def __init__(self, server: MariaDbServer) -> None:
        self.server, self.database = server, f"s{uuid.uuid4().hex[:12]}"
        self.table = f"{self.database}.results"

    def sink(self, **how: Any) -> MariadbDefinition:
        return MariadbDefinition(self.server.url("", "root"), self.table, **how)

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        return asked(self.server, f"use {self.database}", query)

    def create(self, columns: str, more: str = "") -> None:
        asked(self.server, f"create database {self.database}")
        self.ask(f"create table results ({columns}) {more}")


@pytest.fixture
def place(mariadb: MariaDbServer) -> Iterator[Place]:
    made = Place(mariadb)
    yield made
    asked(mariadb, f"drop database if exists {made.database}")


def reasons(staged: Staged) -> dict[Any, str]:
    """Of the rows that became dead letters, by their ids."""
    return {row["id"]: row["__reason"] for _, rows in staged.refused for row in rows}


VALUES = [
    {
        "id": 1, "flag": True, "tiny": -128, "small": 32767, "n": -(2**31), "price": Decimal("123456789.125"), "real": 1.1,
        "x": 0.1 + 0.2, "text": "a\tb\nc\\d\r'\"\\N \0 ü☃\U0001f600'; drop table results; -- ",
        "raw": b"\x00\xff\\'", "day": date(2024, 2, 29),
        "at": datetime(2024, 1, 15, 10, 0, 15, 123456, UTC), "tags": ["x", None, "y\"z'\\"], "place": {"lat": 1.5, "lon": None},
    },
    {"id": 2, "x": 5e-324, "text": "", "raw": b"", "tags": [], "price": Decimal("-0.001"), "at": datetime(1970, 1, 1, tzinfo=UTC)},
    {"id": -(2**63), "x": -1.7976931348623157e308, "text": "\\N", "day": date(1, 1, 1), "real": 3.4028234663852886e38},
]  # fmt: skip


def test_every_type_comes_out_as_it_went_in(place: Place) -> None:
    staged = Staged(place.sink(), EVERY_TYPE)
    sink = staged.sink()
    sink.deliver(staged.epoch_of(*VALUES))
    sink.close()
    assert staged.refused == []
    found = {row[0]: row for row in place.ask("select * from results")}
    for wanted in VALUES:
        row = {f.name: wanted.get(f.name) for f in staged.schema}
        row |= {"at": row["at"] and row["at"].replace(tzinfo=None), "real": row["real"] and float(np.float32(row["real"]))}
        shown = dict(zip(row, found[wanted["id"]], strict=True))
        shown |= {name: shown[name] and orjson.loads(shown[name]) for name in ("tags", "place")}
        assert shown == row


def test_keys_that_differ_in_case_accents_or_trailing_spaces_stay_different(place: Place) -> None:
    keys = ["a", "A", "a ", " a", "ä", "a\0", "", " ", "a'", 'a"', "a\\", "\U0001f600", "ß", "ss"]
    staged = Staged(place.sink(), "id string, text string", updating=True)
    sink = staged.sink()
    sink.deliver(staged.epoch_of(*({"id": key, "text": f"of {key!r}"} for key in keys)))
    assert dict(place.ask("select id, text from results")) == {key: f"of {key!r}" for key in keys}
    sink.deliver(staged.epoch_of(gone=[{"id": "a"}, {"id": " "}]))
    assert {key for (key,) in place.ask("select id from results")} == {*keys} - {"a", " "}
    sink.close()


def test_a_key_longer_than_an_index_takes_is_refused_and_its_delete_passes(place: Place) -> None:
    staged = Staged(place.sink(), "id string, other binary, text string", key=("id", "other"), updating=True)
    sink = staged.sink()
    fits, long = {"id": "☃" * 384, "other": b"x" * 1536, "text": "a"}, {"id": "x" * 385, "other": b"", "text": "b"}
    sink.deliver(staged.epoch_of(fits, long))
    assert "Data too long for column 'id'" in reasons(staged)["x" * 385]
    sink.deliver(staged.epoch_of(gone=[fits, long]))
    assert place.ask("select count(*) from results") == [(0,)]
    sink.close()


def test_what_is_no_number_of_mysql_is_refused_row_by_row(place: Place) -> None:
    staged = Staged(place.sink(), "id long not null, x double, y float")
    sink = staged.sink()
    odd = {3: ("x", math.nan), 4: ("y", math.inf), 7: ("x", -math.inf)}
    rows = [{"id": n, "x": 1.0, "y": None} | ({odd[n][0]: odd[n][1]} if n in odd else {}) for n in range(10)]
    sink.deliver(staged.epoch_of(*rows))
    assert [n for (n,) in place.ask("select id from results order by id")] == [n for n in range(10) if n not in odd]
    assert reasons(staged) == {n: f"column {name!r} is {value}, which is no number of MySQL" for n, (name, value) in odd.items()}
    sink.close()


def test_a_key_may_be_a_number_that_is_none(place: Place) -> None:
    """Such a row is a dead letter; that it goes is no news."""
    staged = Staged(place.sink(), "id double, text string", updating=True)
    sink = staged.sink()
    sink.deliver(staged.epoch_of({"id": math.nan, "text": "a"}, {"id": 1.5, "text": "b"}))
    sink.deliver(staged.epoch_of(gone=[{"id": math.nan}, {"id": 1.5}]))
    assert place.ask("select count(*) from results") == [(0,)]
    assert len(staged.refused) == 1
    sink.close()


def test_a_char_takes_no_text_that_it_would_give_back_without_its_spaces(place: Place) -> None:
    place.create("id char(5) collate utf8mb4_nopad_bin primary key, text char(5)")
    staged = Staged(place.sink(), "id string, text string", updating=True)
    sink = staged.sink()
    sink.deliver(staged.epoch_of({"id": "a", "text": "x"}, {"id": "a ", "text": "y"}, {"id": "b", "text": "z "}))
    assert place.ask("select id, text from results") == [("a", "x")]
    [(_, rows)] = staged.refused
    assert [row["__reason"] for row in rows] == [
        f"column {name!r} ends in a space, which a CHAR does not keep" for name in ("id", "text")
    ]
    sink.deliver(staged.epoch_of(gone=[{"id": "a "}, {"id": "b"}]))
    assert place.ask("select id from results") == [("a",)]
    sink.close()


def test_rows_that_it_refuses_are_named_and_all_others_are_there(place: Place) -> None:
    place.create("id bigint primary key, text varchar(5) check (text <> 'no')")
    staged = Staged(place.sink(), "id long, text string")
    sink = staged.sink()
    texts = {n: f"t{n}" for n in range(50)} | {7: "too long", 20: "no", 33: "cut  \t ", 41: "space  "}
    sink.deliver(staged.epoch_of(*({"id": n, "text": text} for n, text in texts.items())))
    left = [n for (n,) in place.ask("select id from results order by id")]
    assert left == [n for n in range(50) if n not in (7, 20, 33, 41)]
    found = reasons(staged)
    assert [*found] == [7, 20, 33, 41]
    words = {7: "too long", 20: "CONSTRAINT", 33: "truncated", 41: "truncated"}
    assert all(word in found[n] for n, word in words.items()), found
    sink.deliver(staged.epoch_of({"id": 7, "text": "short"}))
    sink.close()
    staged.sink(generation=2).close()
    assert len(staged.refused) == 1, "the epoch behind it refused nothing"


def test_more_refused_rows_than_a_packet_holds_are_kept(tmp_path: Path) -> None:
    """And a row that is larger than one is refused; all that is sent stays below."""
    with MariaDbServer(tmp_path, max_allowed_packet="1M") as server:
        asked(server, "create database shop", "create table shop.results (id bigint primary key, text longtext check (text = 'a'))")
        staged = Staged(MariadbDefinition(server.url("shop", "root"), "results"), "id long, text string")
        sink = staged.sink(fail=CrashAt("store.committed"))
        rows = [{"id": n, "text": f"{n}" * 100_000} for n in range(10, 20)] + [{"id": 2, "text": "x" * (1 << 20)}]
        with pytest.raises(Crash):
            sink.deliver(staged.epoch_of({"id": 1, "text": "a"}, *rows))
        sink.close()
        assert asked(server, "select id, text from shop.results") == [(1, "a")]
        assert asked(server, "select count(*) > 3 from shop.penstock_marker") == [(1,)]
        sink = staged.sink(generation=2)
        assert reasons(staged).keys() == {2, *range(10, 20)}
        assert "larger than max_allowed_packet" in reasons(staged)[2]
        sink.deliver(staged.epoch_of({"id": 3, "text": "a"}, generation=2))
        sink.close()
        assert asked(server, "select epoch, length(refused) from shop.penstock_marker") == [(1, 0)]


def test_rows_refused_before_a_crash_become_dead_letters_at_the_next_start(place: Place) -> None:
    place.create("id bigint primary key, text text not null")
    staged = Staged(place.sink(), "id long, text string")
    sink = staged.sink(fail=CrashAt("store.committed"))
    with pytest.raises(Crash):
        sink.deliver(staged.epoch_of({"id": 1}, {"id": 2, "text": "b"}))
    assert staged.refused == []
    staged.sink(generation=2).close()
    [(epoch, [row])] = staged.refused
    assert (epoch, row["id"], "cannot be null" in row["__reason"]) == (0, 1, True)
    sink.close()


def test_a_row_that_it_refuses_stops_the_sink_where_that_is_asked_for(place: Place) -> None:
    staged = Staged(place.sink(on_error="stop"), "id long not null, x double")
    sink = staged.sink()
    with pytest.raises(SinkError, match=r"refuses a row: column 'x' is nan"):
        sink.deliver(staged.epoch_of({"id": 1, "x": 1.0}, {"id": 2, "x": math.nan}))
    assert place.ask("select count(*) from results") == [(0,)]
    sink.close()


def test_what_a_trigger_refuses_is_a_row_that_is_refused(place: Place) -> None:
    place.create("id bigint primary key, text text")
    place.ask(
        "create trigger no before insert on results for each row "
        "begin if new.id = 2 then signal sqlstate '45000' set message_text = 'not two'; end if; end"
    )
    staged = Staged(place.sink(), "id long, text string")
    sink = staged.sink()
    sink.deliver(staged.epoch_of({"id": 1}, {"id": 2}, {"id": 3}))
    assert reasons(staged) == {2: "not two"}
    assert place.ask("select id from results order by id") == [(1,), (3,)]
    sink.close()


def test_a_conflict_with_another_unique_index_refuses_the_row_and_leaves_the_other(place: Place) -> None:
    """ON DUPLICATE KEY UPDATE would update the row with the same mail, whose id is another."""
    place.create("id bigint primary key, text varchar(50) unique, more int default 7")
    staged = Staged(place.sink(), "id long, text string")
    sink = staged.sink()
    sink.deliver(staged.epoch_of({"id": 1, "text": "a@x"}, {"id": 2, "text": "b@x"}))
    sink.deliver(staged.epoch_of({"id": 3, "text": "a@x"}, {"id": 2, "text": "c@x"}, {"id": 4, "text": "d@x"}))
    assert place.ask("select * from results order by id") == [(1, "a@x", 7), (2, "c@x", 7), (4, "d@x", 7)]
    assert "Duplicate entry 'a@x'" in reasons(staged)[3]
    sink.close()


@pytest.mark.parametrize(
    ("there", "ours", "wrong"),
    [
        ("text int", "text double", "is int(11), which does not take text double"),
        ("text decimal(10,2)", "text decimal(10, 3)", "is decimal(10,2), which does not take text decimal(10,3)"),
        ("text double(10,2)", "text double", "is double(10,2), which does not take text double"),
        ("text datetime", "text timestamp", "is datetime, which does not take text timestamp"),
        ("text float", "text double", "is float, which does not take text double"),
        ("text int", "text string", None),
        ("text decimal(38,20)", "text decimal(10, 3)", None),
        ("text timestamp(6) null", "text timestamp", None),
        ("text varchar(9)", "text double", None),
        ("TEXT bigint unsigned", "text long", None),
    ],
)
def test_a_column_that_is_there_must_keep_the_values(place: Place, there: str, ours: str, wrong: str | None) -> None:
    place.create(f"id bigint primary key, {there}")
    staged = Staged(place.sink(), f"id long, {ours}")
    if wrong is None:
        staged.sink().close()
        assert len(place.ask("show columns from results")) == 2
        return
    with pytest.raises(SinkError) as refused:
        staged.sink()
    assert wrong in str(refused.value)


def test_a_table_that_is_there_must_have_the_key_transactions_and_an_exact_collation(place: Place) -> None:
    place.create("id varchar(20) character set utf8mb4 collate utf8mb4_general_ci, text text", "engine = MyISAM")
    staged = Staged(place.sink(), "id string, text string")
    with pytest.raises(SinkError, match="collation utf8mb4_general_ci takes texts for equal"):
        staged.sink()
    place.ask("alter table results modify id varchar(20) character set utf8mb4 collate utf8mb4_nopad_bin")
    with pytest.raises(SinkError, match="of engine MyISAM, which has no transactions"):
        staged.sink()
    place.ask("alter table results engine = InnoDB, add unique key (id(5))")
    with pytest.raises(SinkError, match="no unique index over the columns that tell rows apart: id"):
        staged.sink()
    place.ask("alter table results add unique key (id)")
    sink = staged.sink()
    sink.deliver(staged.epoch_of({"id": "same start 1", "text": "a"}, {"id": "same start 2", "text": "b"}))
    assert len(reasons(staged)) == 1, "the index over the first letters refuses the second"
    sink.close()
    place.ask("create view seen as select * from results")
    view = Staged(replace(place.sink(), table=f"{place.database}.seen"), "id string, text string", key=())
    with pytest.raises(SinkError, match="a view cannot be written"):
        view.sink()


def test_a_column_that_the_flow_gains_is_added(place: Place) -> None:
    before = Staged(place.sink(), "id long not null, text string")
    sink = before.sink()
    sink.deliver(before.epoch_of({"id": 1, "text": "a"}))
    sink.close()
    after = Staged(place.sink(), "id long not null, text string, more decimal(8, 2), word string not null")
    sink = after.sink(generation=2)
    sink.deliver(after.epoch_of({"id": 2, "text": "b", "more": Decimal("1.25"), "word": "w "}, generation=2))
    sink.close()
    assert place.ask("select * from results order by id") == [(1, "a", None, None), (2, "b", Decimal("1.25"), "w ")]


@pytest.mark.parametrize("choice", ["update", "ignore"])
def test_a_key_that_is_null_is_a_key(place: Place, choice: Any) -> None:
    staged = Staged(place.sink(on_conflict=choice), "id long, other string, text string", key=("id", "other"), updating=True)
    sink = staged.sink()
    sink.deliver(staged.epoch_of({"id": None, "other": "x", "text": "a"}, {"id": 1, "other": None, "text": "b"}))
    sink.deliver(staged.epoch_of({"id": None, "other": "x", "text": "c"}, {"id": None, "other": None, "text": "d"}))
    kept = "c" if choice == "update" else "a"
    assert sorted(place.ask("select text from results")) == sorted([(kept,), ("b",), ("d",)])
    sink.deliver(staged.epoch_of(gone=[{"id": None, "other": "x"}, {"id": None, "other": None}]))
    assert place.ask("select id, other, text from results") == [(1, None, "b")]
    sink.close()


def test_a_soft_delete_keeps_the_row_and_says_when(place: Place) -> None:
    staged = Staged(place.sink(soft_delete="deleted_at"), "id long, text string", updating=True)
    sink = staged.sink()
    sink.deliver(staged.epoch_of({"id": 1, "text": "a"}, {"id": 2, "text": "b"}, {"id": None, "text": "c"}))
    sink.deliver(staged.epoch_of(gone=[{"id": 1, "text": "a"}, {"id": None, "text": "c"}]))
    shown = "select id, deleted_at from results order by id"
    assert place.ask(shown) == [
        (None, datetime(1970, 1, 1, microsecond=1)),
        (1, datetime(1970, 1, 1)),
        (2, None),
    ]
    sink.deliver(staged.epoch_of({"id": 1, "text": "again"}, {"id": None, "text": "again"}))
    assert place.ask(shown) == [(None, None), (1, None), (2, None)]
    sink.close()


@pytest.mark.parametrize(("choice", "text"), [("update", "new"), ("ignore", "old")])
def test_a_row_whose_key_is_there_is_updated_or_ignored(choice: Any, text: str, place: Place) -> None:
    staged = Staged(place.sink(on_conflict=choice), "id long not null, text string")
    sink = staged.sink()
    sink.deliver(staged.epoch_of({"id": 1, "text": "old"}))
    sink.deliver(staged.epoch_of({"id": 1, "text": "new"}))
    sink.close()
    assert place.ask("select text from results") == [(text,)]


def test_a_table_of_its_key_alone_takes_a_key_again(place: Place) -> None:
    staged = Staged(place.sink(), "id long not null")
    sink = staged.sink()
    sink.deliver(staged.epoch_of({"id": 1}))
    sink.deliver(staged.epoch_of({"id": 1}, {"id": 2}))
    assert place.ask("select id from results order by id") == [(1,), (2,)]
    sink.close()


def test_many_rows_go_in_several_statements(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.sinks.stores.sql.mysql_rows.STATEMENT", 2_000)
    staged = Staged(place.sink(), "id long not null, text string")
    sink = staged.sink()
    long = {3: "x" * 10_000, 500: "y" * 1_990, 999: "z" * 5_000}
    rows = [{"id": n, "text": long.get(n, f"row {n}")} for n in range(1_000)]
    sink.deliver(staged.epoch_of(*rows))
    assert place.ask("select id, text from results order by id") == [(row["id"], row["text"]) for row in rows]
    sink.close()


def test_names_are_quoted_and_never_cut(mariadb: MariaDbServer, place: Place) -> None:
    hostile = "x`; drop table y; -- %s"
    definition = replace(place.sink(), table=f"{place.database}.{hostile}", soft_delete="gone`%s at")
    staged = Staged(definition, "select long not null, `from` string, Größe_表 string", key=["select"], updating=True)
    sink = staged.sink()
    words = {"from": "'; drop database mysql; -- %s", "Größe_表": "`"}
    sink.deliver(staged.epoch_of({"select": 1, **words}, {"select": 2}))
    sink.deliver(staged.epoch_of(gone=[{"select": 2}]))
    sink.close()
    quoted = "`{}`".format(hostile.replace("`", "``"))
    assert place.ask(f"select `from`, `Größe_表` from {quoted} where `gone``%s at` is null") == [tuple(words.values())]
    with pytest.raises(SinkError, match="longer name than MySQL takes"):
        Staged(place.sink(), f"id long, {'x' * 65} string").sink()
    Staged(place.sink(), f"id long, {'x' * 64} string").sink().close()
    with pytest.raises(SinkError, match="a name that MySQL does not take"):
        Staged(place.sink(), "id long, `\U00020bb7` string").sink()
    with pytest.raises(BadInput, match="is no name of a table"):
        definition_of(mariadb.url("shop"), "x" * 64)


def test_a_commit_whose_answer_was_lost_is_found_by_its_marker(place: Place) -> None:
    staged = Staged(place.sink(), "id long, text string", key=())
    sink = staged.sink()
    delivery = staged.epoch_of({"id": 1, "text": "a"})
    with LostAnswers(place.server.address) as way:
        url = f"mysql://root@{way.address}/?ssl-mode=DISABLED"
        through = Staged(MariadbDefinition(url, place.table), "id long, text string", key=())
        through.storage = staged.storage
        other = through.sink(generation=2)
        way.lose_the_next()
        marked = replace(delivery, marker=replace(delivery.marker, generation=2))
        with pytest.raises(SinkUnavailable):
            other.deliver(marked)
        assert other.open(LIFE, 2) == 0, "the commit went through"
        other.deliver(marked)
        other.close()
    assert place.ask("select count(*) from results") == [(1,)]
    sink.close()


def test_a_store_that_was_restored_from_a_copy_is_noticed(place: Place) -> None:
    staged = Staged(place.sink(), "id long, text string")
    sink = staged.sink()
    sink.deliver(staged.epoch_of({"id": 1, "text": "a"}))
    sink.deliver(staged.epoch_of({"id": 2, "text": "b"}))
    place.ask("update penstock_marker set epoch = 0")
    with pytest.raises(SinkUnavailable, match="has gone back from epoch 1 to 0"):
        sink.deliver(staged.epoch_of({"id": 3, "text": "c"}))
    assert sink.open(LIFE, 1) == 0
    sink.close()


def test_a_driver_that_waits_too_long_for_the_marker_tries_again_later(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    staged = Staged(place.sink(), "id long, text string")
    staged.sink().close()
    with closing(pymysql.connect(host="127.0.0.1", port=place.server.port, user="root", database=place.database)) as other:
        other.cursor().execute("select * from penstock_marker for update")
        monkeypatch.setattr("penstock.sinks.stores.sql.mysql_connection.LOCK_SECONDS", 1)
        with pytest.raises(SinkUnavailable, match="Lock wait timeout"):
            staged.sink(generation=2)
    staged.sink(generation=2).close()


def test_a_server_that_is_killed_is_unavailable_and_takes_the_epoch_later(tmp_path: Path) -> None:
    with MariaDbServer(tmp_path, innodb_flush_log_at_trx_commit="1") as server:
        staged = Staged(MariadbDefinition(server.url("", "root"), "shop.results"), "id long, text string")
        sink = staged.sink()
        for n in range(3):
            delivery = staged.epoch_of({"id": n, "text": "a"})
            server.kill()
            with pytest.raises(SinkUnavailable):
                sink.deliver(delivery)
            with pytest.raises(SinkUnavailable, match=r"table shop\.results of MariaDB 127\.0\.0\.1"):
                sink.open(LIFE, 1)
            server.start()
            assert sink.open(LIFE, 1) == n - 1
            sink.deliver(delivery)
        assert asked(server, "select count(*) from shop.results") == [(3,)]
        sink.close()


@pytest.fixture
def certificate() -> Iterator[Path]:
    """Where a server that is not run as root can read it."""
    with tempfile.TemporaryDirectory() as directory:
        made = certificate_in(Path(directory))
        give_away(Path(directory))
        yield made


def test_it_is_reached_by_a_socket_and_by_tls_that_is_checked(certificate: Path, tmp_path: Path) -> None:
    with MariaDbServer(tmp_path, ssl_cert=str(certificate), ssl_key=str(certificate.with_name("key.pem"))) as server:
        asked(server, "create database shop", "create user secure@'%' require ssl", "grant all on *.* to secure@'%'")

        def reached(user: str, host: str, options: str, table: str) -> list[tuple[Any, ...]]:
            staged = Staged(mysql(f"mysql://{user}@{host}/shop?{options}", f"shop.{table}"), "id long")
            staged.sink().close()
            return asked(server, f"select count(*) from shop.{table}")

        assert reached("root", "localhost", f"socket={server.socket}", "local") == [(0,)]
        port = f"localhost:{server.port}"
        assert reached("secure", port, f"ssl-ca={certificate}", "checked") == [(0,)]
        assert reached("secure", port, "ssl-mode=required", "unchecked") == [(0,)]
        with pytest.raises(SinkError, match="Access denied"):
            reached("secure", port, "ssl-mode=disabled", "refused")
        with pytest.raises(SinkUnavailable, match="certificate verify failed"):
            reached("secure", f"127.0.0.1:{server.port}", f"ssl-ca={certificate}", "refused")
        with pytest.raises(SinkError, match="No such file"):
            reached("secure", port, "ssl-ca=/nowhere.pem", "refused")


def test_a_password_is_never_shown(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("mysql://shop:hunter2@db/shop", "mysql://shop@db/shop?password=hunter2"):
        with pytest.raises(BadInput, match="has a password") as refused:
            mysql(url, "sales")
        assert "hunter2" not in str(refused.value)
    with pytest.raises(BadInput, match="must name a secret"):
        mysql("mysql://shop@db/shop", "sales", password="hunter2")
    monkeypatch.setenv("SHOP_PASSWORD", "hunter2 ☃")
    hidden = mysql("mysql://nobody@127.0.0.1:1/shop", "sales", password="env:SHOP_PASSWORD")
    assert "hunter2" not in repr(hidden)
    with pytest.raises(SinkUnavailable) as unreachable:
        Staged(hidden, "id long").sink()
    assert "hunter2" not in str(unreachable.value)
    asked(place.server, "create or replace user shop@'%' identified by 'hunter2 ☃'", "grant all on *.* to shop@'%'")
    url = place.server.url("", "shop")
    Staged(definition_of(url, place.table, password="env:SHOP_PASSWORD"), "id long").sink().close()
    monkeypatch.setenv("SHOP_PASSWORD", "another")
    with pytest.raises(SinkError, match="Access denied"):
        Staged(definition_of(url, place.table, password="env:SHOP_PASSWORD"), "id long").sink()


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("postgresql://db/shop", "begins with mysql:// or mariadb://"),
        ("mysql://db", "no database is named for table 'sales'"),
        ("mysql://db/shop?charset=latin1", "option 'charset' of the URL of a MySQL is not known"),
        ("mysql://db/shop?ssl-mode=maybe", "ssl-mode=maybe in the URL"),
        ("mysql://db/shop?read-timeout=soon", "is no number of seconds"),
        ("mysql://db:port/shop", "cannot be read"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused(url: str, wrong: str) -> None:
    with pytest.raises(BadInput) as refused:
        mysql(url, "sales")
    assert wrong in str(refused.value)
