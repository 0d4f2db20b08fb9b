"""What every engine of captures must pass. Subclass `CaptureContract`, say which engine it is and where its database is, run
pytest.

    class TestMyEngine(CaptureContract):
        engine, connector = "mine", "my-database"

        @contextmanager
        def database(self, place):
            yield MyDatabase(place)

The statements of the suite are those that all databases know. The suite runs the engine until it has caught up, crashes it at every
point of the writer, changes the database in between, and reads the topics back."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest

from penstock.capture.writing.journal import read_journal
from penstock.capture.writing.writer import POINTS
from penstock.testing.contracts.capture.following import CapturedDatabase, Following, Unconfirmed
from penstock.testing.contracts.capture.records import Record, check_ends
from penstock.testing.contracts.sink import Crash, CrashAt

USERS = "create table users (id integer primary key, name text, age integer)"
ORDERS = "create table orders (user_id integer, nr integer, item text, primary key (user_id, nr))"
ITEMS = "create table items (sku varchar(20) primary key, stock integer)"
TABLES = ("users", "orders", "items")
MANY = 6000
ROLL_BACK = "rollback"  # as the last of some statements: none of them counts


def many(rows: int) -> str:
    """A statement that inserts so many users."""
    return (
        f"with recursive n(i) as (select 1 union all select i + 1 from n where i < {rows}) "
        "insert into users select i, 'user ' || i, i from n"
    )


class CaptureContract(ABC):
    """The tests. Each gets a database of its own, with three tables."""

    engine: ClassVar[str]
    connector: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}
    each_change: ClassVar[bool] = True  # False: it sees what has become of a row, not each change, and no transactions
    boundaries: ClassVar[bool] = True  # False: several transactions may be told as one
    positions: ClassVar[bool] = True  # False: the database tells neither `source.lsn` nor `source.txId`

    @abstractmethod
    def database(self, place: Path) -> AbstractContextManager[CapturedDatabase]:
        """A database, or a part of one, in which nothing is."""

    @pytest.fixture
    def shop(self, tmp_path: Path) -> Iterator[Following]:
        """Three tables with a few rows that are going to be followed."""
        with self.database(tmp_path) as database:
            database.execute(USERS, ORDERS, ITEMS)
            database.execute("insert into users values (1, 'ann', 30), (2, 'bob', 40)", "insert into orders values (1, 1, 'pen')")
            following = Following.of(self.engine, database, *TABLES, options=dict(self.options))
            yield following
            following.end()

    @pytest.fixture
    def followed(self, shop: Following) -> Following:
        """The same, copied already."""
        shop.begin().catch_up()
        return shop

    def test_rows_that_were_there_are_copied_and_changes_follow(self, shop: Following) -> None:
        shop.begin().catch_up()
        assert shop.changes("users") == [
            ("r", {"id": 1}, {"id": 1, "name": "ann", "age": 30}),
            ("r", {"id": 2}, {"id": 2, "name": "bob", "age": 40}),
        ]
        assert shop.records("items") == []
        shop.database.execute("insert into users values (3, 'cleo', 50)")
        shop.database.execute("update users set age = 31 where id = 1")
        shop.database.execute("delete from users where id = 2")
        shop.catch_up()
        assert sorted(shop.changes("users")[2:], key=lambda change: change[1]["id"]) == [
            ("u", {"id": 1}, {"id": 1, "name": "ann", "age": 31}),
            ("d", {"id": 2}, None),
            ("c", {"id": 3}, {"id": 3, "name": "cleo", "age": 50}),
        ]

    def test_what_is_changed_before_the_first_run_is_there(self, shop: Following) -> None:
        shop.begin()
        shop.database.execute("update users set name = 'anna' where id = 1", "insert into users values (3, 'cleo', 50)")
        shop.database.execute("delete from users where id = 2")
        shop.catch_up()
        assert {row["id"]: row["name"] for row in shop.fold("users").values()} == {1: "anna", 3: "cleo"}

    def test_an_envelope_says_where_its_change_comes_from(self, followed: Following) -> None:
        followed.database.execute("update users set age = 31 where id = 1")
        followed.catch_up()
        *copies, update = followed.envelopes("users")
        assert [record.value["source"]["snapshot"] for record in (*copies, update)] == ["true", "true", "false"]
        for record in (*copies, update):
            assert set(record.value) >= {"before", "after", "source", "op", "ts_ms", "transaction"}
            source = record.value["source"]
            assert (source["connector"], source["name"], source["table"]) == (self.connector, followed.definition.name, "users")
            assert (source.get("schema") or "") == followed.database.schema
            assert isinstance(source["db"], str)
            assert 0 < source["ts_ms"] <= record.value["ts_ms"] + 60_000
            assert set(record.value["transaction"]) == {"id", "total_order", "data_collection_order"}
        if self.positions:
            assert update.value["source"]["lsn"] > 0
            assert update.value["source"]["txId"] > 0
            assert update.value["source"]["lsn"] >= copies[-1].value["source"]["lsn"]

    def test_keys_are_json_in_the_order_of_the_table(self, shop: Following) -> None:
        shop.database.execute("insert into items values ('a\"b', 1)")
        shop.begin().catch_up()
        assert [record.key for record in shop.records("orders")] == ['{"user_id":1,"nr":1}']
        assert [record.key for record in shop.records("items")] == ['{"sku":"a\\"b"}']

    def test_a_delete_has_a_tombstone_behind_it(self, followed: Following) -> None:
        followed.database.execute("delete from users where id = 1")
        followed.catch_up()
        delete, tombstone = followed.records("users")[2:]
        assert (delete.key, delete.value["op"], delete.value["after"]) == ('{"id":1}', "d", None)
        assert (tombstone.key, tombstone.value) == ('{"id":1}', None)

    def test_a_change_of_the_key_is_a_delete_and_a_create(self, followed: Following) -> None:
        followed.database.execute("update users set id = 9 where id = 1")
        followed.catch_up()
        found = followed.changes("users")[2:]
        assert sorted(found, key=lambda change: change[0], reverse=True) == [
            ("d", {"id": 1}, None),
            ("c", {"id": 9}, {"id": 9, "name": "ann", "age": 30}),
        ]
        assert not self.each_change or [op for op, _, _ in found] == ["d", "c"]

    def test_changes_of_a_row_stand_in_their_order(self, followed: Following) -> None:
        self._every_change()
        followed.database.execute(*(f"update users set age = {age} where id = 1" for age in range(5)))
        followed.database.execute("delete from users where id = 1", "insert into users values (1, 'new', 7)")
        followed.database.execute("update users set name = 'newer' where id = 1")
        followed.catch_up()
        assert [(op, row and row["age"]) for op, _, row in followed.changes("users")[2:]] == [
            *(("u", age) for age in range(5)),
            *(("d", None), ("c", 7), ("u", 7)),
        ]

    def test_a_transaction_over_several_tables_is_told_as_one(self, followed: Following) -> None:
        self._every_change()
        followed.database.execute(
            *("insert into users values (3, 'cleo', 1)", "insert into orders values (3, 1, 'ink')"),
            *("update users set age = 2 where id = 3", "insert into items values ('ink', 5)"),
        )
        followed.database.execute("insert into users values (4, 'dan', 1)")
        followed.catch_up()
        users, orders, items = (followed.envelopes(table)[-count:] for table, count in zip(TABLES, (3, 1, 1), strict=True))
        mine = users[0].transaction
        assert [record.transaction == mine for record in (*users[:2], *orders, *items)] == [True] * 4
        assert not self.boundaries or users[2].transaction != mine
        assert sorted((_order(record), record.value["op"]) for record in (*users[:2], *orders, *items)) == [
            *((1, "c"), (2, "c"), (3, "u"), (4, "c")),
        ]
        assert [record.value["transaction"]["data_collection_order"] for record in users[:2]] == [1, 2]

    def test_what_was_rolled_back_was_never_there(self, followed: Following) -> None:
        followed.database.execute(
            *("insert into users values (3, 'stays', 1)", "savepoint a", "insert into users values (4, 'goes', 1)"),
            *("update users set name = 'goes' where id = 1", "rollback to savepoint a", "insert into users values (5, 'stays', 1)"),
        )
        followed.database.execute("delete from users", ROLL_BACK)
        followed.catch_up()
        assert sorted(row["name"] for row in followed.fold("users").values()) == ["ann", "bob", "stays", "stays"]
        assert len(followed.changes("users")) == 4

    def test_the_journal_has_each_transaction_once_with_its_counts(self, followed: Following) -> None:
        followed.database.execute("insert into users values (3, 'cleo', 1)", "delete from orders", "delete from users where id = 1")
        followed.catch_up()
        self._check_journal(followed)
        ends = [record for record in followed.journal() if record.status == "END"]
        counts = {name.rpartition(".")[2]: count for name, count in ends[-1].tables.items()}
        assert not self.each_change or counts == {"users": 2, "orders": 1}

    def test_nothing_is_doubled_when_it_is_started_again(self, followed: Following) -> None:
        followed.database.execute("insert into users values (3, 'cleo', 1)")
        for _ in range(3):
            followed.catch_up()
        assert [key["id"] for _, key, _ in followed.changes("users")] == [1, 2, 3]
        self._check_journal(followed)

    def test_nothing_is_doubled_although_the_database_was_never_told_what_is_durable(self, shop: Following) -> None:
        shop.begin()
        for number in range(3, 6):
            shop.catch_up(engine=Unconfirmed)
            shop.database.execute(f"insert into users values ({number}, 'new', 1)")
        shop.catch_up(engine=Unconfirmed)
        shop.catch_up()
        assert [key["id"] for _, key, _ in shop.changes("users")] == [1, 2, 3, 4, 5]
        self._check_journal(shop)

    @pytest.mark.parametrize("point", POINTS)
    def test_a_crash_at_any_point_is_gone_on_from(self, shop: Following, point: str) -> None:
        """In the copy first, then in what follows; the database is changed before the next start."""
        shop.begin()
        for number in range(3, 7):
            with pytest.raises(Crash):
                shop.catch_up(CrashAt(point, number % 2 + 1))
            shop.database.execute(
                *(f"insert into users values ({number}, 'new', 1)", f"insert into orders values ({number}, 1, 'ink')"),
                *(f"update users set age = {number} where id = 1", f"insert into items values ('{number}', 1)"),
            )
        shop.catch_up()
        self._check_journal(shop)
        assert {row["id"]: row["age"] for row in shop.fold("users").values()} == {1: 6, 2: 40, 3: 1, 4: 1, 5: 1, 6: 1}
        for table in TABLES:
            made = Counter((record.value["op"], record.key) for record in shop.envelopes(table) if record.value["op"] in "cr")
            assert len({record.key for record in shop.envelopes(table)}) == {"users": 6, "orders": 5, "items": 4}[table]
            assert set(made.values()) == {1}, f"rows of {table} were made, or copied, twice"

    def test_a_copy_that_was_cut_short_goes_on(self, shop: Following) -> None:
        shop.database.execute("delete from users", many(MANY))
        shop.begin()
        for nth in (1, 2):
            with pytest.raises(Crash):
                shop.catch_up(CrashAt("capture.ended", nth))
        shop.database.execute("update users set age = -1 where id in (1, 3000, 5999)", "delete from users where id = 6000")
        shop.catch_up()
        rows = shop.fold("users")
        assert len(rows) == MANY - 1
        assert [rows[f'{{"id":{key}}}']["age"] for key in (1, 2, 3000, 5999)] == [-1, 2, -1, -1]
        copied = Counter(record.key for record in shop.envelopes("users") if record.value["op"] == "r")
        assert set(copied.values()) == {1}
        self._check_journal(shop)

    def test_common_values_are_what_they_are(self, shop: Following) -> None:
        create = "create table kinds (id integer primary key, whole bigint, real double precision, words text)"
        rows = "(1, 9007199254740993, 0.5, 'ä\"\\ x'), (2, -1, -1e100, ''), (3, null, null, null)"
        shop.database.execute(create, f"insert into kinds values {rows}")
        kinds = Following.of(self.engine, shop.database, "kinds", options=dict(self.options)).begin()
        kinds.catch_up()
        shop.database.execute("update kinds set id = id + 10")
        kinds.catch_up()
        values = [(9007199254740993, 0.5, 'ä"\\ x'), (-1, -1e100, ""), (None, None, None)]
        for first, ops in ((1, "r"), (11, "c")):
            found = [row for op, _, row in kinds.changes("kinds") if op == ops]
            assert sorted((tuple(row.values()) for row in found), key=lambda row: row[0]) == [
                (first + i, *value) for i, value in enumerate(values)
            ]
        kinds.end()

    def test_topics_know_columns_and_key_of_their_tables(self, followed: Following) -> None:
        state = read_journal(followed.log.topic(followed.definition.names.transactions)).state
        facts = state.tables[followed.topic("orders")]
        assert [column.split()[0] for column in facts["schema"].split(", ")] == ["user_id", "nr", "item"]
        assert list(facts["key"]) == ["user_id", "nr"]

    def test_flat_topics_have_the_rows_alone(self, shop: Following) -> None:
        more: dict[str, Any] = {"flat": True, "topics": "{name}.{table}", "options": dict(self.options)}
        flat = Following.of(self.engine, shop.database, "users", **more).begin()
        flat.catch_up()
        shop.database.execute("delete from users where id = 1")
        flat.catch_up()
        assert [(record.key, record.value and record.value["name"]) for record in flat.records("users")] == [
            *(("1", "ann"), ("2", "bob"), ("1", None)),
        ]
        flat.end()

    def test_setting_up_again_changes_nothing(self, followed: Following) -> None:
        followed.begin()
        followed.database.execute("insert into users values (3, 'cleo', 1)")
        followed.begin().catch_up()
        assert [key["id"] for _, key, _ in followed.changes("users")] == [1, 2, 3]

    def _every_change(self) -> None:
        if not self.each_change:
            pytest.skip("this engine does not see each change")

    @staticmethod
    def _check_journal(following: Following) -> None:
        """BEGIN and END once for each transaction, END with the events that are in the topics, whole whenever it says so."""
        journal = following.journal()
        begun, ended = ([record.id for record in journal if record.status == status] for status in ("BEGIN", "END"))
        assert begun == ended
        assert len(set(ended)) == len(ended)
        events = {table: Counter(record.transaction for record in following.envelopes(table)) for table in TABLES}
        for record in journal:
            if record.status == "END":
                counts = {name.rpartition(".")[2]: count for name, count in record.tables.items() if count}
                assert counts == {table: events[table][record.id] for table in TABLES if events[table][record.id]}
                assert record.events == sum(counts.values())
        for table in TABLES:
            assert _together(following.envelopes(table)), f"the changes of a transaction do not stand together in {table}"
            check_ends(journal, following.topic(table), following.records(table))


def _order(record: Record) -> int:
    return int(record.value["transaction"]["total_order"])


def _together(records: Sequence[Record]) -> bool:
    ids = [record.transaction for record in records]
    changes = sum(before != after for before, after in pairwise(ids))
    return changes == max(0, len(set(ids)) - 1)
