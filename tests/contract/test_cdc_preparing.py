"""How a real PostgreSQL is looked at and prepared for a capture: what is refused, and that what mends it does."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from contract.cdc_shop import Shop, own_server
from penstock.capture.definition import CaptureDefinition
from penstock.capture.postgres import kind as postgres_kind
from penstock.capture.registry import Captures
from penstock.testing.servers.postgres import PostgresServer
from unit.cli.calling import calls_of

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def shop(postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    made = Shop(postgres, tmp_path / "home")
    yield made
    made.remove()


@pytest.fixture
def plain_server(tmp_path: Path) -> Iterator[PostgresServer]:
    yield from own_server(tmp_path, wal_level="replica", synchronous_commit="off", max_replication_slots="0")


def test_a_server_without_logical_decoding_is_told_what_mends_it(plain_server: PostgresServer) -> None:
    answer = calls_of("cdc")("check", plain_server.url)
    assert answer.code == 4
    assert "✗ wal_level is 'replica'" in answer.out
    assert "    alter system set wal_level = 'logical';\n    -- then restart the server\n" in answer.out
    assert "✗ max_replication_slots is 0, and all of them are used" in answer.out
    assert "! synchronous_commit is off: changes come about 170 ms later" in answer.out
    assert "! max_slot_wal_keep_size is unlimited" in answer.out
    assert "    alter system set max_slot_wal_keep_size = '50GB';\n    select pg_reload_conf();\n" in answer.out


def test_what_mends_a_server_is_what_it_needs(plain_server: PostgresServer) -> None:
    rows = calls_of("cdc")("check", plain_server.url, "--output", "jsonl").rows
    for statement in [statement for row in rows for statement in row["mend"] if not statement.startswith("--")]:
        plain_server.execute(statement)
    plain_server.stop()
    data = plain_server.place / "data" / "postgresql.auto.conf"
    mended = dict(line.split(" = ") for line in data.read_text().splitlines() if not line.startswith("#"))
    assert {name: value.strip("'") for name, value in mended.items()} == {
        "wal_level": "logical",
        "max_replication_slots": "10",
        "max_slot_wal_keep_size": "50GB",
        "synchronous_commit": "on",
    }
    plain_server.start()  # which gives its own settings on the command line, where they count


def test_a_table_without_a_key_is_refused_with_its_two_ways_out(shop: Shop) -> None:
    shop.server.execute(f"create table {shop.name}.bare (a int, b int not null); insert into {shop.name}.bare values (1, 1)")
    refused = shop.add(tables="users,bare")
    table = f"{shop.name}.bare"
    assert refused.code == 2
    assert f"nothing identifies the rows of table {table}: once it is published, every UPDATE and DELETE of it fails" in refused.err
    assert f"    alter table {table} add primary key (…);\n" in refused.err
    assert f"    alter table {table} replica identity using index bare_key;\n" in refused.err
    assert shop.left() == []
    shop.server.execute(f"update {table} set a = 2")  # which a publication would have broken
    shop.server.execute(f"create unique index bare_key on {table} (b); alter table {table} replica identity using index bare_key")
    assert shop.add(tables="users,bare").code == 0
    assert shop.catch_up().code == 0
    shop.server.execute(f"update {table} set a = 3")
    assert shop.catch_up().code == 0
    assert shop.rows("bare") == 2


def test_what_mends_rights_is_what_the_user_needs(shop: Shop) -> None:
    """As the statements say it: they are executed by somebody who may, until nothing is left to mend."""
    user, name = f"little_{shop.name}", shop.name
    shop.server.execute(
        f"create role {user} login; alter table {name}.orders enable row level security;"
        f"alter table {name}.users replica identity nothing; create unlogged table {name}.fast (id int primary key)"
    )
    url = shop.server.url.replace("postgres@", f"{user}@")
    wrong = shop.call("check", url, "--tables", f"{name}.*", "--output", "jsonl")
    told = "\n".join(row["what"] for row in wrong.rows if row["level"] == "error")
    for what in ("may not replicate", "may not make a publication", f"may not read table {name}.users", "row security hides rows"):
        assert what in told
    assert f"table {name}.fast is unlogged" in told
    assert f"nothing identifies the rows of table {name}.users" in told
    assert f"does not own {name}.fast, {name}.orders, {name}.users" in told
    for statement in [each for row in wrong.rows if row["level"] == "error" for each in row["mend"]]:
        if not statement.startswith(("--", "create publication")):
            shop.server.execute(statement)
    assert shop.call("check", url, "--tables", f"{name}.*").code == 0
    try:
        assert shop.call("add", name, url, "--tables", f"{name}.*").code == 0
        assert shop.catch_up().code == 0
        assert shop.call("remove", name, "--yes").code == 0
        assert shop.left() == []
    finally:
        shop.server.execute(f"reassign owned by {user} to postgres; drop owned by {user}; drop role {user}")


def test_a_publication_that_the_owner_has_made_is_used_and_stays(shop: Shop) -> None:
    shop.server.execute(f"create publication {shop.slot} for table {shop.name}.users with (publish_via_partition_root = true)")
    added = shop.add(tables="users")
    assert (added.code, added.out) == (0, f"select pg_create_logical_replication_slot('{shop.slot}', 'pgoutput');\n")
    assert shop.catch_up().code == 0
    removed = shop.call("remove", shop.name, "--yes")
    assert f"publication {shop.slot} was made by somebody else and stays" in removed.err
    assert shop.left() == [f"publication {shop.slot}"]


def test_columns_that_are_generated_come_along_and_virtual_ones_are_told(shop: Shop) -> None:
    table = f"{shop.name}.sums"
    shop.server.execute(
        f"create table {table} (id int primary key, twice int generated always as (2 * id) stored,"
        "thrice int generated always as (3 * id) virtual)"
    )
    found = shop.call("check", shop.server.url, "--tables", table)
    assert (found.code, f"! table {table}: generated columns are not in the stream: thrice (virtual)" in found.out) == (0, True)
    shop.server.execute(f"insert into {table} values (1)")
    shop.add(tables="sums")
    shop.catch_up()
    shop.server.execute(f"insert into {table} values (2)")
    shop.catch_up()
    (first, second) = calls_of("topic")("consume", f"{shop.name}.{table}", "--output", "jsonl").rows
    assert [each["after"] for each in (first, second)] == [{"id": 1, "twice": 2}, {"id": 2, "twice": 4}]


def test_partitions_belong_to_their_table_and_each_needs_to_be_identified(shop: Shop) -> None:
    whole, part = f"{shop.name}.days", f"{shop.name}.days_1"
    shop.server.execute(
        f"create table {whole} (id int, day date) partition by range (day);"
        f"create table {part} partition of {whole} for values from ('2024-01-01') to ('2025-01-01')"
    )
    refused = shop.add(tables="days")
    assert (refused.code, f"alter table {whole} add primary key (…);" in refused.err) == (2, True)
    shop.server.execute(f"alter table {whole} add primary key (id, day); alter table {part} replica identity nothing")
    refused = shop.add(tables="days")
    assert (refused.code, f"alter table {part} replica identity default;" in refused.err) == (2, True)
    shop.server.execute(f"alter table {part} replica identity default; insert into {whole} values (1, '2024-05-05')")
    assert shop.call("add", shop.name, shop.server.url, "--tables", f"{shop.name}.days*").code == 0
    assert Captures().get(shop.name).tables == ((shop.name, "days"),)
    assert shop.catch_up().code == 0
    assert shop.rows("days") == 1


@pytest.mark.parametrize(
    ("pattern", "told"),
    [("{}.nothing", "means no table of the database"), ("{}.seen", "is a view"), ("{}.a b", "names no table")],
)
def test_what_is_no_table_is_told(shop: Shop, pattern: str, told: str) -> None:
    shop.server.execute(f"create view {shop.name}.seen as select * from {shop.name}.users")
    answer = shop.call("check", shop.server.url, "--tables", pattern.format(shop.name))
    assert (answer.code in (2, 3), told in answer.err) == (True, True)


def test_tables_are_found_by_any_way_of_writing_them(shop: Shop) -> None:
    shop.server.execute(f'create table {shop.name}."My.Table" (id int primary key)')
    kind, definition = postgres_kind.PostgresKind(), CaptureDefinition(shop.name, "postgres", shop.server.url, ())

    def found(*patterns: str) -> set[str]:
        return {table for _, table in kind.tables(definition, [f"{shop.name}.{pattern}" for pattern in patterns])}

    assert found("users") == found("USERS") == {"users"}
    assert found("*") == {"users", "orders", "My.Table"}
    assert found("?sers", "ord*") == {"users", "orders"}
    assert found('"My.Table"') == {"My.Table"}
    assert kind.tables(definition, [f'"{shop.name}".users']) == [(shop.name, "users")]


def test_the_name_of_a_slot_is_one_whatever_the_capture_is_called(shop: Shop) -> None:
    names = ["Shop", "shop", "shop-1", "shop.1", "x" * 100, "x" * 101]
    slots = [postgres_kind.slot_of(CaptureDefinition(name, "postgres", "", ())) for name in names]
    assert len(set(slots)) == len(names)
    with psycopg.connect(shop.server.url, autocommit=True) as connection:
        for slot in slots:
            connection.execute("select pg_create_logical_replication_slot(%s, 'pgoutput', true)", (slot,))
