"""What Debezium's engine writes of a MariaDB: its values, its DDL, and where each change stands in the binlog."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from debezium_sources import ACCOUNTS, PASSWORD, MariaDbPlace
from penstock.capture.debezium.kind import DebeziumKind
from penstock.capture.definition import CaptureDefinition, Secret
from penstock.capture.runner import CaptureRun
from penstock.capture.writing.journal import read_journal
from penstock.core.schema import Schema
from penstock.errors import NotFollowable, NotFound, SlotLost
from penstock.log.file.log import FileLog
from penstock.storage.local import LocalStorage
from penstock.testing.contracts.capture.records import Record, envelopes_of
from penstock.testing.servers.mariadb import MariaDbServer
from waiting import until

PATIENCE = 90.0
TYPES = """
create table types (
    id int primary key, big bigint, huge bigint unsigned, flag boolean, single float, wide double, words text, fixed decimal(10, 2),
    day date, at datetime(6), zoned timestamp(3) null, clock time(6), bytes varbinary(20), doc json, mood enum('glad', 'sad'),
    y year, defaulted int default 7);
insert into types values
    (1, -9007199254740993, 18446744073709551615, true, 1.5, 1e10, 'h\u00e4 "x"', 1.5, '2020-02-03', '2020-02-03 04:05:06.789',
     '2020-02-03 04:05:06.7', '10:11:12.5', x'dead', '{"a": 1}', 'sad', 2020, null),
    (2, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, 1);
"""
FIRST = {
    "id": 1,
    "big": -9007199254740993,
    "huge": "18446744073709551615",
    "flag": 1,
    "single": 1.5,
    "wide": 1e10,
    "words": 'h\u00e4 "x"',
    "fixed": "1.50",
    "day": "2020-02-03",
    "at": "2020-02-03T04:05:06.789",
    "zoned": "2020-02-03T04:05:06.7Z",
    "clock": "10:11:12.5",
    "bytes": "3q0=",
    "doc": '{"a": 1}',
    "mood": "sad",
    "y": 2020,
    "defaulted": None,
}
DDL = (
    "id int, big long, huge decimal(20,0), flag smallint, single float, wide double, words string, fixed decimal(10,2), day date, "
    "at timestamp, zoned timestamp, clock string, bytes binary, doc string, mood string, y int, defaulted int"
)
CHANGES = """
update types set big = 5, defaulted = null where id = 2;
begin; insert into accounts values (10, 1), (11, 2); update accounts set id = 12 where id = 11; commit;
alter table items add column w varchar(9) default 'd';
insert into items values (2, 2, null);
truncate accounts;
"""


class Followed:
    def __init__(self, place: MariaDbPlace, home: Path) -> None:
        self.place, self.home = place, home
        self.log = FileLog(LocalStorage(home / "log"))
        definition = place.definition()
        self.definition = replace(definition, tables=(*definition.tables, (place.name, "types")))

    def run(self) -> CaptureRun:
        engine = DebeziumKind().open(self.definition, LocalStorage(self.home / "engine"))
        return CaptureRun(self.definition, self.log, LocalStorage(self.home / "capture"), engine)

    def records(self, table: str) -> list[Record]:
        return envelopes_of(self.log, self.place.topic(table))

    def facts(self, table: str) -> Any:
        return read_journal(self.log.topic(f"{self.place.name}.transaction")).state.tables[self.place.topic(table)]


@pytest.fixture(scope="module")
def followed(
    mariadb: MariaDbServer, mariadb_jars: str, debezium: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Followed]:
    """The copy of some rows, and changes behind it; a truncate, whose transaction has no end in the binlog, is the last of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PASSWORD, MariaDbServer.password)
        made = Followed(MariaDbPlace(mariadb, mariadb_jars), tmp_path_factory.mktemp("followed"))
        made.place.execute(f"{TYPES} insert into items values (1, 1);")
        run = made.run()
        thread = threading.Thread(target=run.run)
        thread.start()
        try:
            assert until(lambda: len(made.records("types")) == 2 or not thread.is_alive(), PATIENCE)
            made.place.execute(CHANGES)
            assert until(lambda: len(made.records("accounts")) == 6 or not thread.is_alive(), PATIENCE)
        finally:
            run.stop()
            thread.join(PATIENCE)
        yield made
        made.place.drop()


def test_values_are_as_the_schema_of_the_topic_says(followed: Followed) -> None:
    first, second, changed = (record.value["after"] for record in followed.records("types"))
    assert first == FIRST
    assert second == dict.fromkeys(FIRST) | {"id": 2, "defaulted": 1}
    assert changed == dict.fromkeys(FIRST) | {"id": 2, "big": 5}
    assert followed.facts("types")["schema"] == DDL == Schema.of(DDL).ddl()
    assert list(followed.facts("types")["key"]) == ["id"]


def test_a_change_of_the_key_and_a_truncate_are_deletes(followed: Followed) -> None:
    changes = [(record.value["op"], record.key) for record in followed.records(ACCOUNTS)]
    keys = {op: [key for each, key in changes if each == op] for op in "cd"}
    assert keys == {
        "c": ['{"id":10}', '{"id":11}', '{"id":12}'],
        "d": ['{"id":11}', '{"id":10}', '{"id":12}'],
    }
    assert [op for op, _ in changes] == list("ccdcdd")


def test_a_column_that_is_added_is_known_from_then_on(followed: Followed) -> None:
    assert [record.value["after"] for record in followed.records("items")] == [{"id": 1, "v": 1}, {"id": 2, "v": 2, "w": None}]
    assert followed.facts("items")["schema"] == "id int, v int, w string"


def test_every_envelope_says_where_its_change_stands_in_the_binlog(followed: Followed) -> None:
    """MariaDB has neither an LSN nor numbers of transactions: file, position and GTID say it."""
    for table in ("types", ACCOUNTS, "items"):
        records = followed.records(table)
        sources = [record.value["source"] for record in records]
        places = [(source["file"], source["pos"]) for source in sources]
        assert places == sorted(places)
        assert {source["connector"] for source in sources} == {"mariadb"}
        for record, source in zip(records, sources, strict=True):
            assert record.value["op"] == "r" or source["gtid"] == record.transaction
            assert (source["db"], source["table"]) == (followed.place.name, table)


def test_it_goes_on_behind_ddl_and_knows_when_it_has_caught_up(followed: Followed) -> None:
    before = followed.records(ACCOUNTS)
    followed.run().run(catch_up=True)
    assert followed.records(ACCOUNTS) == before
    followed.place.execute("insert into items values (3, 3, 'x'); create table other (id int)")
    followed.run().run(catch_up=True)
    assert [record.value["after"]["id"] for record in followed.records("items")] == [1, 2, 3]


def test_a_database_is_looked_at_before_it_is_followed(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, place = DebeziumKind(), followed.place
    place.execute("create table keyless (v int)")
    name = place.name
    found = kind.check(replace(followed.definition, tables=((name, "types"), (name, "keyless"), (name, "none"))))
    assert [each.what for each in found if each.level == "error"] == [
        f"table {name}.keyless has no primary key",
        f"there is no table {name}.none, or the user may not see it",
    ]
    assert kind.tables(followed.definition, ["t*", f"{name}.items"]) == [(name, "types"), (name, "items")]
    with pytest.raises(NotFound, match="no table is called 'nothing'"):
        kind.tables(followed.definition, ["nothing"])
    made = kind.set_up(followed.definition)
    assert kind.set_up(made) == made
    with pytest.raises(NotFollowable, match="none that are added later"):
        kind.set_up(replace(made, tables=(*made.tables, (name, "more"))))
    assert kind.tear_down(followed.definition) == []
    monkeypatch.setenv("PENSTOCK_TEST_WRONG", "wrong")
    wrong = replace(followed.definition, secret=Secret(variable="PENSTOCK_TEST_WRONG"))
    (refused,) = [each for each in kind.check(wrong) if each.level == "error"]
    assert "Access denied" in refused.what
    with pytest.raises(NotFollowable, match="cannot follow the database"):
        kind.tables(wrong, ["*"])


def test_a_binlog_that_is_gone_stops_it(followed: Followed) -> None:
    for _ in range(2):
        followed.place.execute("insert into items select max(id) + 1, 0, '' from items; flush binary logs")
    ((last, *_),) = followed.place.server.execute("show master status")

    def purged() -> bool:
        followed.place.execute(f"purge binary logs to '{last}'")  # a log that is still read from stays
        return len(followed.place.server.execute("show binary logs")) == 1

    assert until(purged, PATIENCE)
    with pytest.raises(SlotLost, match="changes are missing"):
        followed.run().run(catch_up=True)


def test_a_connector_that_nobody_tested_is_warned_of(debezium: None) -> None:
    found = DebeziumKind().check(CaptureDefinition("x", "debezium", "sqlserver://me@127.0.0.1:1/db", ()))
    assert any(each.level == "warning" and "never tested" in each.what for each in found)
