"""What Debezium's engine writes of a PostgreSQL: the same as our own engine where values are common ones, and everything that a
database does."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from debezium_sources import ACCOUNTS, PostgresPlace, run_of
from penstock.capture.debezium.kind import DebeziumKind
from penstock.capture.definition import CaptureDefinition, Secret
from penstock.capture.postgres.kind import PostgresKind
from penstock.capture.runner import CaptureRun
from penstock.capture.writing.journal import read_journal
from penstock.errors import AlreadyThere, BadInput, NotFollowable, NotFound, SlotLost
from penstock.log.file.log import FileLog
from penstock.storage.local import LocalStorage
from penstock.testing.contracts.capture.records import Record, envelopes_of, journal_of
from penstock.testing.servers.postgres import PostgresServer
from waiting import until

PATIENCE = 90.0
SECRET = "not-to-be-seen-anywhere"
TYPES = """
create table types (
    id int primary key, big bigint, small smallint, flag boolean, single float4, double float8, text text, varying varchar(20),
    fixed numeric(10, 2), free numeric, day date, at timestamp, zoned timestamptz, clock time, bytes bytea, doc jsonb, key uuid,
    numbers int[], words text[], mood mood);
"""
ROWS = """
insert into types values
    (1, 9007199254740993, -3, true, 1.1, 1e10, 'h\u00e4 "x"\n\\', 'v', 1.5, 12345678901234567890.123, '2020-02-03',
     '2020-02-03 04:05:06.789', '2020-02-03 04:05:06.7+02', '10:11:12.5', '\\xdead', '{"a": [1, null]}',
     'a5be7d9a-d836-4632-b334-18239c431be4', '{1,2,null}', '{x,"y z"}', 'glad'),
    (2, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null),
    (3, 0, 0, false, 0, -0.5, '', '', 0, 0, 'infinity', 'infinity', '-infinity', '00:00:00', '', 'null', null, '{}', '{}', null),
    (4, 1, 1, true, 'NaN', 'Infinity', '\u4e2d', 'x', -0.01, 1e-7, '1969-12-31', '1969-12-31 23:59:59.999999',
     '2038-01-19 03:14:08+00', '23:59:59.999999', '\\x00', '"t"', null, '{3}', null, null),
    (5, 1, 1, true, '-Infinity', 0, 'x', 'x', 1, 'NaN', '-infinity', '0044-03-15 BC', 'infinity', '01:00:00', '', '{}',
     null, null, null, null);
"""
NOTES = "create table notes (id int primary key, note text, body bytea, n int);"
CHANGES = """
update types set big = big - 1;
begin; update notes set n = 2; update notes set id = 7 where id = 1; commit;
update notes set note = 'short' where id = 7;
begin; insert into accounts values (10, 1), (11, 2); truncate accounts; insert into accounts values (12, 3); commit;
alter table items add column w text default 'd';
insert into items values (2, 2, 'e'), (3, 3, null);
delete from items where id = 1;
"""


@dataclass(frozen=True)
class Followed:
    place: PostgresPlace
    home: Path
    log: FileLog
    definition: CaptureDefinition

    def records(self, table: str) -> list[Record]:
        return envelopes_of(self.log, self.place.topic(table))

    def rows(self, table: str) -> list[Any]:
        return [record.value["after"] for record in self.records(table)]

    def facts(self, table: str) -> Any:
        return read_journal(self.log.topic(f"{self.place.name}.transaction")).state.tables[self.place.topic(table)]


@pytest.fixture(scope="module")
def followed(postgres: PostgresServer, debezium: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Followed]:
    """Tables with all kinds of values: the copy of some rows, and changes behind it."""
    place, home = PostgresPlace(postgres), tmp_path_factory.mktemp("followed")
    place.execute("create type mood as enum ('glad', 'sad')")
    place.execute(TYPES + NOTES + ROWS)
    place.execute(
        "insert into notes select 1, string_agg(md5(i::text), ''), sha256('x') || string_agg(sha256(i::text::bytea), ''), 1 "
        "from generate_series(1, 3000) i; insert into items values (1, 1)"
    )
    tables = (*place.definition().tables, (place.name, "types"), (place.name, "notes"))
    made = Followed(place, home, FileLog(LocalStorage(home / "log")), _with(place.definition(), tables))
    postgres.execute(f"create role {place.name} login superuser password '{SECRET}'")
    _follow(made)
    yield made
    place.drop()
    postgres.execute(f"drop role {place.name}")


def _with(definition: CaptureDefinition, tables: Any) -> CaptureDefinition:
    from dataclasses import replace

    return replace(definition, tables=tables)


def _follow(followed: Followed) -> None:
    engine = DebeziumKind().open(followed.definition, LocalStorage(followed.home / "engine"))
    run = CaptureRun(followed.definition, followed.log, LocalStorage(followed.home / "capture"), engine)
    thread = threading.Thread(target=run.run)
    thread.start()
    try:
        assert until(lambda: len(followed.records("types")) == 5 or not thread.is_alive(), PATIENCE)
        followed.place.execute(CHANGES)
        assert until(lambda: len(followed.records("items")) == 4 or not thread.is_alive(), PATIENCE)
    finally:
        run.stop()
        thread.join(PATIENCE)
    assert not thread.is_alive()


def test_values_and_types_are_those_of_the_engine_postgres(followed: Followed, tmp_path: Path) -> None:
    name = f"own{followed.place.name}"
    own = CaptureDefinition(name, "postgres", followed.place.server.url, ((followed.place.name, "types"),))
    kind, log = PostgresKind(), FileLog(LocalStorage(tmp_path / "log"))
    own = kind.set_up(own)
    try:
        engine = kind.open(own, LocalStorage(tmp_path / "engine"))
        CaptureRun(own, log, LocalStorage(tmp_path / "capture"), engine).run(catch_up=True)
    finally:
        kind.tear_down(own)
    topic = own.names.topic((followed.place.name, "types"))
    ours = {record.key: record.value["after"] for record in envelopes_of(log, topic)}
    theirs = {record.key: record.value["after"] for record in followed.records("types")}
    assert theirs.keys() == ours.keys()
    for key, row in ours.items():
        differ = {name: (theirs[key][name], value) for name, value in row.items() if theirs[key][name] != value}
        assert not differ, key
    mine = read_journal(log.topic(f"{name}.transaction")).state.tables[topic]
    assert followed.facts("types")["schema"] == mine["schema"]
    assert followed.facts("types")["key"] == mine["key"]


def test_large_values_that_stayed_the_same_are_filled_in(followed: Followed) -> None:
    ((_, note, body),) = followed.place.server.execute(f"select id, note, encode(body, 'base64') from {followed.place.name}.notes")
    rows = [(record.value["op"], record.value["after"]) for record in followed.records("notes")]
    assert [op for op, _ in rows] == ["r", "u", "d", "c", "u"]
    large = rows[0][1]["note"]
    assert len(large) == 32 * 3000
    assert [after and after["note"] == large for _, after in rows] == [True, True, None, True, False]
    assert [after and after["body"] == body.replace("\n", "") for _, after in rows] == [True, True, None, True, True]
    assert rows[-1][1]["note"] == note == "short"
    assert all("__penstock" not in str(row) for row in rows)


def test_a_truncate_deletes_what_was_there(followed: Followed) -> None:
    changes = [(record.value["op"], record.key) for record in followed.records("accounts")]
    assert changes == [
        ("c", '{"id":10}'), ("c", '{"id":11}'), ("d", '{"id":10}'), ("d", '{"id":11}'), ("c", '{"id":12}')
    ]  # fmt: skip


def test_a_column_that_is_added_is_known_from_then_on(followed: Followed) -> None:
    assert followed.rows("items") == [{"id": 1, "v": 1}, {"id": 2, "v": 2, "w": "e"}, {"id": 3, "v": 3, "w": None}, None]
    assert followed.facts("items")["schema"] == "id int, v int, w string"


def test_a_delete_tells_the_key_alone_where_the_database_does(followed: Followed) -> None:
    assert followed.records("items")[-1].value["before"] == {"id": 1}


def test_every_envelope_says_where_its_change_stands(followed: Followed) -> None:
    lsns = []
    for table in ("types", "notes", "accounts", "items"):
        for record in followed.records(table):
            source = record.value["source"]
            assert source["connector"] == "postgresql"
            assert (source["schema"], source["table"], source["name"]) == (followed.place.name, table, followed.place.name)
            assert source["txId"] > 0 or record.value["op"] == "d"
            assert record.value["transaction"]["total_order"] > 0
        streamed = [record.value["source"]["lsn"] for record in followed.records(table) if record.value["op"] in "cu"]
        assert streamed == sorted(streamed)
        lsns += streamed
    assert min(lsns) > 0


def test_a_slot_that_was_dropped_stops_it(followed: Followed, tmp_path: Path) -> None:
    place = followed.place
    (slot,) = [followed.definition.options["slot"]]
    for lost in (f"select pg_drop_replication_slot('{slot}')", f"select pg_create_logical_replication_slot('{slot}', 'pgoutput')"):
        place.server.execute(lost)
        engine = DebeziumKind().open(followed.definition, LocalStorage(followed.home / "engine"))
        run = CaptureRun(followed.definition, followed.log, LocalStorage(followed.home / "capture"), engine)
        with pytest.raises(SlotLost, match=r"is not there any more|somebody has made the slot anew"):
            run.run(catch_up=True)


def test_a_transaction_that_is_too_large_to_hold_comes_in_parts_and_goes_on_after_a_kill(
    postgres: PostgresServer, debezium: None, tmp_path: Path
) -> None:
    from penstock.capture.debezium.engine import DebeziumEngine

    class Killed(Exception):
        pass

    place = PostgresPlace(postgres)
    definition, log = place.definition(properties={"max.batch.size": "300"}), FileLog(LocalStorage(tmp_path / "log"))
    left = [4]

    def fail(point: str) -> None:
        if point == "capture.appended" and left:
            left[0] -= 1
            if not left[0]:
                left.pop(0)
                raise Killed

    def run(fail: Any) -> None:
        engine = DebeziumEngine(definition, LocalStorage(tmp_path / "engine"), bound=200_000)
        CaptureRun(definition, log, LocalStorage(tmp_path / "capture"), engine, fail=fail).run(catch_up=True)

    try:
        place.execute("insert into items values (0, 0)")
        run(lambda point: None)
        place.execute("insert into items values (1, 1); insert into accounts select i, i from generate_series(1, 3000) i")
        with pytest.raises(Killed):
            run(fail)
        place.execute("insert into items values (2, 2)")
        run(lambda point: None)
        records = envelopes_of(log, place.topic(ACCOUNTS))
        assert [record.value["after"]["id"] for record in records] == list(range(1, 3001))
        assert [record.value["transaction"]["total_order"] for record in records] == list(range(2, 3002))
        assert len({record.transaction for record in records}) == 1
        said = [entry.status for entry in journal_of(log, place.name) if entry.id == records[0].transaction]
        assert (said.count("BEGIN"), said.count("END")) == (1, 1)
        assert len(envelopes_of(log, place.topic("items"))) == 3
    finally:
        place.drop()


def test_a_password_is_nowhere_to_be_seen(followed: Followed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    place = PostgresPlace(followed.place.server)
    monkeypatch.setenv("PENSTOCK_TEST_SECRET", SECRET)
    url = place.server.url.replace("postgres@", f"{followed.place.name}@")
    definition = replace(place.definition(), url=url, secret=Secret(variable="PENSTOCK_TEST_SECRET"))
    engine = DebeziumKind().open(definition, LocalStorage(tmp_path / "engine"))
    run = CaptureRun(definition, FileLog(LocalStorage(tmp_path / "log")), LocalStorage(tmp_path / "capture"), engine)
    seen: list[list[str]] = []

    def look(progress: Any) -> None:
        mine = [child.pid for child in psutil.Process().children()]
        seen.extend(child.info["cmdline"] or [] for child in psutil.process_iter(["cmdline"]) if child.pid in mine)

    run = CaptureRun(definition, FileLog(LocalStorage(tmp_path / "log")), LocalStorage(tmp_path / "capture"), engine, look)
    try:
        run.run(catch_up=True)
    finally:
        place.drop()
    assert any("child.py" in part for line in seen for part in line)
    assert SECRET not in str(seen)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]


def test_what_cannot_be_followed_is_said_and_nothing_is_left_behind(postgres: PostgresServer, debezium: None) -> None:
    place, kind = PostgresPlace(postgres), DebeziumKind()
    place.execute("create table keyless (v int)")
    try:
        found = kind.check(_with(place.definition(), ((place.name, "keyless"),)))
        assert any(each.level == "error" and "keyless" in each.what for each in found)
        assert all(each.level != "error" for each in kind.check(place.definition()))
        assert kind.tables(place.definition(), [f"{place.name}.a*"]) == [(place.name, ACCOUNTS)]
        with pytest.raises(NotFound):
            kind.tables(place.definition(), [f"{place.name}.nothing"])
        away = CaptureDefinition("x", "debezium", "postgresql://nobody@127.0.0.1:1/x", ())
        assert any(each.level == "error" and "refused" in each.what for each in kind.check(away))
        bare = CaptureDefinition(place.name, "debezium", postgres.url, place.definition().tables)
        made = kind.set_up(bare)
        assert kind.set_up(made) == made
        assert kind.tear_down(made) == []
        postgres.execute(f"select pg_create_logical_replication_slot('{made.options['slot']}', 'pgoutput')")
        with pytest.raises(AlreadyThere, match="it is not this capture's"):
            kind.set_up(bare)
        assert kind.tear_down(bare) == []
        assert kind.tear_down(made) == [f"replication slot {made.options['slot']} is dropped"]
    finally:
        place.drop()


def test_a_password_that_is_wrong_and_a_connector_that_is_none_stop_it(followed: Followed, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no connector 'foxpro'"):
        DebeziumKind().open(CaptureDefinition("x", "debezium", "foxpro://x/y", ()), LocalStorage(tmp_path))
    place = PostgresPlace(followed.place.server)
    try:
        with pytest.raises(NotFollowable, match="Debezium cannot follow the database"):
            run_of(place, tmp_path, connector="oracle").run(catch_up=True)
    finally:
        place.drop()
