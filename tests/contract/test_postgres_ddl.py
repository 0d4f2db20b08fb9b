"""What a real database does beside changing rows: columns that come and go while it is followed, truncates, keys that change,
generated columns, partitions, replica identities."""

import pytest

from capture_postgres import Follow
from penstock.capture.postgres.connecting import connect
from penstock.capture.postgres.slots import create_publication, drop_publication
from penstock.errors import NotFollowable


def test_columns_that_are_added_dropped_renamed_and_widened_between_two_changes_of_one_batch(follow: Follow) -> None:
    of = follow("create table t (id int primary key, a int, b text)")
    of.catch_up()
    of.sql("insert into t values (1, 1, 'b')")
    of.sql("alter table t add c text default 'new'; insert into t values (2, 2, 'b', 'c')")
    of.sql("alter table t drop b; insert into t values (3, 3, 'c')")
    of.sql("alter table t rename a to aa; insert into t values (4, 4, 'c')")
    of.sql("alter table t alter aa type numeric(20, 3); insert into t values (5, 5.5, 'c')")
    of.sql("update t set c = 'last' where id = 1")
    of.catch_up()
    assert of.changes("t") == [
        ("c", {"id": 1, "a": 1, "b": "b"}),
        ("c", {"id": 2, "a": 2, "b": "b", "c": "c"}),
        ("c", {"id": 3, "a": 3, "c": "c"}),
        ("c", {"id": 4, "aa": 4, "c": "c"}),
        ("c", {"id": 5, "aa": "5.500", "c": "c"}),
        ("u", {"id": 1, "aa": "1.000", "c": "last"}),
    ]
    assert len([batch for batch in of.batches if any(map(len, batch.changes))]) == 1
    assert of.facts("t")["schema"] == "id int, aa decimal(20,3), c string"


def test_columns_change_inside_of_a_transaction(follow: Follow) -> None:
    of = follow("create table t (id int primary key, a int)")
    of.catch_up()
    of.sql(
        "begin; insert into t values (1, 1); alter table t rename a to b; insert into t values (2, 2);"
        "alter table t add c int; update t set c = 3; commit"
    )
    of.catch_up()
    assert [row for _, row in of.changes("t")] == [
        {"id": 1, "a": 1},
        {"id": 2, "b": 2},
        {"id": 1, "b": 1, "c": 3},
        {"id": 2, "b": 2, "c": 3},
    ]


def test_columns_change_while_a_table_is_copied(follow: Follow) -> None:
    of = follow("create table t (id int primary key, a int, b int); insert into t select i, i, i from generate_series(1, 40) i")
    of.chunks_of(10)
    of.start()
    while not of.batches:
        of.go_on()
    of.sql("alter table t drop a; alter table t add c text default 'c'; alter table t rename id to key")
    of.catch_up()
    assert [row for _, row in of.changes("t")][:10] == [{"id": i, "a": i, "b": i} for i in range(1, 11)]
    assert [row for _, row in of.changes("t")][-10:] == [{"key": i, "b": i, "c": "c"} for i in range(31, 41)]
    assert len(of.changes("t")) == 40


def test_the_key_of_a_table_with_replica_identity_full_may_be_renamed_before_its_changes_are_read(follow: Follow) -> None:
    of = follow("create table t (id int primary key, v int); alter table t replica identity full; insert into t values (1, 1)")
    of.catch_up()
    of.engine.close()  # type: ignore[union-attr]
    of.sql("update t set v = 2")
    of.sql("alter table t rename id to key")
    of.sql("update t set v = 3")
    of.start().catch_up()
    assert [record.key for record in of.records("t")] == ['{"id":1}', '{"id":1}', '{"key":1}']


@pytest.mark.parametrize("flat", [False, True])
def test_a_truncate_of_several_tables_deletes_what_each_had(follow: Follow, flat: bool) -> None:
    made = "".join(
        f"create table {name} (id int primary key, v text); insert into {name} values (1, 'x'), (2, 'y');" for name in "abc"
    )
    of = follow(made, "a", "b", "c", flat=flat)
    of.catch_up()
    of.sql(
        "begin; insert into a values (3, 'z'); delete from a where id = 1; truncate a, b; insert into a values (2, 'new'); commit"
    )
    of.catch_up()
    assert [of.rows(name) for name in "abc"] == [[{"id": 2, "v": "new"}], [], [{"id": 1, "v": "x"}, {"id": 2, "v": "y"}]]


def test_a_change_of_the_key_is_a_delete_and_a_create(follow: Follow) -> None:
    of = follow("create table t (a int, v text, b text, primary key (b, a)); insert into t values (1, 'v', 'x')")
    of.catch_up()
    of.sql("update t set v = 'w'; update t set b = 'y'; update t set a = 2, v = 'z'")
    of.catch_up()
    assert of.changes("t")[1:] == [
        ("u", {"a": 1, "v": "w", "b": "x"}),
        ("d", {"a": 1, "b": "x"}),
        ("c", {"a": 1, "v": "w", "b": "y"}),
        ("d", {"a": 1, "b": "y"}),
        ("c", {"a": 2, "v": "z", "b": "y"}),
    ]


def test_keys_that_change_places_in_one_transaction_do_not_get_lost(follow: Follow) -> None:
    of = follow("create table t (id int primary key deferrable, v text); insert into t values (1, 'a'), (2, 'b')")
    with connect(of.server.url) as connection:
        connection.execute(f"alter table {of.schema}.t replica identity full".encode())
    of.sql("alter table t drop constraint t_pkey; alter table t add primary key (id)")
    of.catch_up()
    of.sql("begin; update t set id = 3 where id = 1; update t set id = 1 where id = 2; update t set id = 2 where id = 3; commit")
    of.catch_up()
    assert sorted((row["id"], row["v"]) for row in of.rows("t")) == [(1, "b"), (2, "a")]


@pytest.mark.parametrize("published", [True, False])
def test_stored_generated_columns_come_where_the_publication_has_them(follow: Follow, published: bool) -> None:
    of = follow(
        "create table t (id int primary key, v int, twice int generated always as (2 * v) stored); insert into t values (1, 1)"
    )
    with connect(of.server.url) as connection:
        drop_publication(connection, of.schema)
        create_publication(connection, of.schema, [of.table("t")])
        stored = "stored" if published else "none"
        connection.execute(f"alter publication {of.schema} set (publish_generated_columns = {stored})".encode())
    of.catch_up()
    of.sql("update t set v = 3")
    of.catch_up()
    rows = [{"id": 1, "v": 1, "twice": 2}, {"id": 1, "v": 3, "twice": 6}]
    assert [row for _, row in of.changes("t")] == [row if published else {"id": 1, "v": row["v"]} for row in rows]


def test_a_partitioned_table_is_one_topic(follow: Follow) -> None:
    ddl = """create table t (id int, day date, v int, primary key (id, day)) partition by range (day);
             create table t_old partition of t for values from (minvalue) to ('2024-01-01');
             create table t_new partition of t for values from ('2024-01-01') to (maxvalue);
             insert into t values (1, '2023-05-05', 1), (2, '2024-05-05', 2)"""
    of = follow(ddl)
    of.catch_up()
    of.sql("update t set v = 10 where id = 1; update t set day = '2024-06-06' where id = 1")
    of.sql("insert into t_old values (3, '2020-01-01', 3); delete from t_new where id = 2")
    of.catch_up()
    assert sorted((row["id"], row["day"], row["v"]) for row in of.rows("t")) == [(1, "2024-06-06", 10), (3, "2020-01-01", 3)]
    of.sql("truncate t_old")
    of.catch_up()
    assert of.log.topics() == [f"shop.{of.schema}.t", "shop.transaction"]


def test_a_table_without_a_key_is_refused_with_two_ways_out(follow: Follow) -> None:
    of = follow("create table t (id int, v int); insert into t values (1, 1)")
    with pytest.raises(NotFollowable, match="has no primary key") as refused:
        of.catch_up()
    assert refused.value.hint
    assert "replica identity using index" in refused.value.hint
    assert "replica identity full" in refused.value.hint


@pytest.mark.parametrize("identity", ["full", "using index t_code"])
def test_a_unique_index_on_columns_that_are_not_null_is_a_key(follow: Follow, identity: str) -> None:
    ddl = f"""create table t (v int, code text not null, id int); create unique index t_code on t (code);
              alter table t replica identity {identity}; insert into t values (1, 'x', 1), (2, 'y', null)"""
    of = follow(ddl)
    of.chunks_of(1)
    of.catch_up()
    of.sql("update t set v = 9 where code = 'x'; update t set code = 'z' where code = 'y'; delete from t where code = 'x'")
    of.catch_up()
    assert of.rows("t") == [{"v": 2, "code": "z", "id": None}]
    assert of.facts("t")["key"] == ["code"] or of.facts("t")["key"] == ("code",)
    assert [record.key for record in of.records("t")][-2:] == ['{"code":"x"}'] * 2


def test_replica_identity_full_without_any_key_is_refused(follow: Follow) -> None:
    of = follow("create table t (id int, v int); create unique index on t (id); alter table t replica identity full")
    with pytest.raises(NotFollowable, match="has no primary key"):
        of.catch_up()


def test_sub_transactions_that_were_rolled_back_leave_nothing(follow: Follow) -> None:
    of = follow("create table t (id int primary key, v int)")
    of.catch_up()
    of.sql(
        "begin; insert into t values (1, 1); savepoint s; insert into t values (2, 2); rollback to s; update t set v = 3; commit"
    )
    of.sql("begin; insert into t values (9, 9); rollback")
    of.sql("begin; insert into t values (4, 4); prepare transaction 'x'")
    of.catch_up()
    assert of.changes("t") == [("c", {"id": 1, "v": 1}), ("u", {"id": 1, "v": 3})]
    of.server.execute("commit prepared 'x'")
    of.catch_up()
    assert of.changes("t")[2:] == [("c", {"id": 4, "v": 4})]
