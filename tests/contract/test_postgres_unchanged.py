"""Large values that an update did not change and that PostgreSQL does not send: every record has them nevertheless."""

import pytest

from capture_postgres import Follow

# `external` keeps large values out of the row and uncompressed, so that they are not sent where they stay.
TABLE = "create table t (id int primary key, big text, n int, more text); alter table t alter big set storage external;"
BIG = "repeat('0123456789', 500)"
VALUE = "0123456789" * 500


def test_a_value_that_stayed_comes_from_an_earlier_change_of_the_same_batch(follow: Follow) -> None:
    of = follow(TABLE)
    of.catch_up()
    of.sql(f"begin; insert into t values (1, {BIG}, 0); update t set n = 1; update t set n = 2; commit")
    of.catch_up()
    assert of.changes("t") == [(op, {"id": 1, "big": VALUE, "n": n, "more": None}) for op, n in [("c", 0), ("u", 1), ("u", 2)]]


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("flat", [False, True])
def test_a_value_that_stayed_comes_from_our_own_log(follow: Follow, flat: bool, partitions: int) -> None:
    of = follow(TABLE, flat=flat, partitions=partitions)
    of.sql(f"insert into t select i, {BIG} || i, 0 from generate_series(1, 50) i")
    of.catch_up()
    of.sql("update t set n = id where id % 2 = 0")
    of.catch_up()
    of.sql("begin; update t set n = -1 where id < 5; commit; alter table t disable trigger all")
    of.catch_up().start().catch_up()
    of.sql("update t set more = 'x'")
    of.catch_up()
    expected = [(i, VALUE + str(i), -1 if i < 5 else i if i % 2 == 0 else 0, "x") for i in range(1, 51)]
    assert sorted(tuple(row.values()) for row in of.rows("t")) == expected


def test_our_log_is_asked_before_the_database_is(follow: Follow) -> None:
    of = follow(TABLE + f"insert into t values (1, {BIG}, 0)")
    of.catch_up()
    of.sql(f"update t set n = 1; update t set big = 'new' || {BIG}")  # both before the next batch is read
    of.catch_up()
    assert [row["big"] for _, row in of.changes("t")] == [VALUE, VALUE, "new" + VALUE]


def test_a_change_of_the_key_takes_the_value_along(follow: Follow) -> None:
    of = follow(TABLE + f"insert into t values (1, {BIG}, 0), (2, {BIG} || 'two', 0)")
    of.catch_up()
    of.sql(
        "update t set id = 11 where id = 1; begin; update t set id = 12 where id = 2; update t set id = 13 where id = 12; commit"
    )
    of.catch_up()
    moved = {"id": 11, "big": VALUE, "n": 0, "more": None}
    assert of.changes("t")[2:4] == [("d", {"id": 1}), ("c", moved)]
    assert sorted((row["id"], row["big"]) for row in of.rows("t")) == [(11, VALUE), (13, VALUE + "two")]


def test_a_value_of_a_row_that_is_not_in_our_log_yet_comes_from_the_database(follow: Follow) -> None:
    of = follow(TABLE + f"insert into t select i, {BIG}, 0 from generate_series(1, 3) i")
    of.start()  # nothing is copied yet
    of.sql("update t set n = 7 where id = 2")
    of.catch_up()
    assert ("u", {"id": 2, "big": VALUE, "n": 7, "more": None}) in of.changes("t")
    assert all(row["big"] == VALUE for row in of.rows("t"))


def test_a_field_is_left_out_where_nobody_knows_it_as_the_row_is_gone(follow: Follow) -> None:
    of = follow(TABLE + f"insert into t values (1, {BIG}, 0)")
    of.start()
    of.sql("update t set n = 7; update t set n = 8; delete from t")
    of.catch_up()
    assert of.changes("t") == [("u", {"id": 1, "n": 7, "more": None}), ("u", {"id": 1, "n": 8, "more": None}), ("d", {"id": 1})]
    of.sql(f"insert into t values (1, {BIG} || 'again', 0)")
    of.sql("update t set n = 1")
    of.catch_up()
    assert of.rows("t") == [{"id": 1, "big": VALUE + "again", "n": 1, "more": None}]


def test_a_record_without_a_field_does_not_count_as_one_that_knows_it(follow: Follow) -> None:
    of = follow(TABLE + f"insert into t values (1, {BIG}, 0)")
    of.start()
    of.sql("update t set n = 7; update t set id = 2; update t set n = 8")  # when it is asked for, row 1 is gone
    of.catch_up()
    assert of.rows("t") == [{"id": 2, "big": VALUE, "n": 8, "more": None}]
    assert ("u", {"id": 1, "n": 7, "more": None}) in of.changes("t")


def test_null_stays_null_and_several_values_stay_apart(follow: Follow) -> None:
    columns = "create table t (a text, id int primary key, b text, c text);"
    ddl = columns + "alter table t alter a set storage external, alter c set storage external;"
    of = follow(ddl)
    of.sql(f"insert into t values ({BIG} || 'a', 1, null, {BIG} || 'c'), (null, 2, 'b', {BIG})")
    of.catch_up()
    of.sql("update t set b = 'new'")
    of.catch_up()
    assert of.rows("t") == [
        {"a": VALUE + "a", "id": 1, "b": "new", "c": VALUE + "c"},
        {"a": None, "id": 2, "b": "new", "c": VALUE},
    ]
    assert list(of.rows("t")[0]) == ["a", "id", "b", "c"]


def test_with_replica_identity_full_the_row_before_has_the_value(follow: Follow) -> None:
    of = follow(TABLE + f"alter table t replica identity full; insert into t values (1, {BIG}, 0)")
    of.start()
    of.sql("update t set n = 7; delete from t")
    of.catch_up()
    assert of.changes("t") == [("u", {"id": 1, "big": VALUE, "n": 7, "more": None}), ("d", {"id": 1})]


def test_a_value_of_a_column_that_was_renamed_is_not_taken_for_another(follow: Follow) -> None:
    of = follow(TABLE + "alter table t alter more set storage external;")
    of.sql(f"insert into t values (1, {BIG} || 'big', 0, {BIG} || 'more')")
    of.catch_up()
    of.sql(
        "alter table t rename big to tmp; alter table t rename more to big; alter table t rename tmp to more; update t set n = 1"
    )
    of.catch_up()
    assert of.rows("t") == [{"id": 1, "more": VALUE + "big", "n": 1, "big": VALUE + "more"}]
    of.start()
    of.sql("update t set n = 2")
    of.catch_up()
    assert of.rows("t") == [{"id": 1, "more": VALUE + "big", "n": 2, "big": VALUE + "more"}]


def test_values_that_stayed_are_written_once_though_the_batch_is_made_again(follow: Follow) -> None:
    of = follow(TABLE + f"insert into t select i, {BIG} || i, 0 from generate_series(1, 5) i")
    of.catch_up()
    of.sql("update t set n = id")

    def fail(point: str) -> None:
        if point == "capture.appended":
            raise KeyboardInterrupt

    of.fail = fail
    of.start()
    with pytest.raises(KeyboardInterrupt):
        of.catch_up()
    of.fail = lambda point: None
    of.start().catch_up()
    of.sql("update t set n = 0")
    of.catch_up()
    assert [row["big"] for _, row in of.changes("t")] == [VALUE + str(i) for i in range(1, 6)] * 3


def test_many_values_that_stayed_are_written_in_batches_that_fit_into_memory(follow: Follow) -> None:
    of = follow(TABLE + f"insert into t select i, {BIG} || i, 0 from generate_series(1, 1300) i")
    of.catch_up()
    of.batches.clear()
    of.sql("begin; insert into t values (0, 'small', 0); update t set n = id where id > 0; update t set n = -n; commit")
    of.sql("update t set n = 7")
    of.sql("insert into t values (-1, 'last', 0)")
    while len(of.batches) < 4:
        of.go_on()
    of.start().catch_up()
    assert max(len(changes) for batch in of.batches for changes in batch.changes) <= 501
    assert len(of.batches) >= 8
    rows = {row["id"]: (row["big"], row["n"]) for row in of.rows("t")}
    assert rows == {-1: ("last", 0), 0: ("small", 7)} | {i: (VALUE + str(i), 7) for i in range(1, 1301)}
    ids = [row["id"] for op, row in of.changes("t") if op != "r"]
    assert ids == [0, *range(1, 1301), *ids[1301:2602], *ids[2602:3903], -1]
    assert sorted(ids[1301:2602]) == sorted(ids[2602:3903]) == list(range(1301))
