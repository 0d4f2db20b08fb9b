"""Deletes on the command line: produce --delete, and lines that consume writes and produce reads."""

import csv
import io
import json

import pytest

from penstock.log.consumer import records
from penstock.log.producer import Producer

from .test_topic import Call, call, lines, topic

__all__ = ["call"]

USERS = ["--schema", "user_id long, name string not null, at timestamp", "--key", "user_id", "--time", "at"]
ROW = '{"user_id": 1, "name": "a", "at": "2024-01-15T10:00:00Z"}'


@pytest.mark.parametrize("settings", [USERS, ["--key", "user_id"], ["--key", "user_id", "--partitions", "3"]])
def test_lines_with_keys_are_deletes_of_their_rows(call: Call, settings: list[str]) -> None:
    call("produce", "users", *settings, given=lines(ROW))
    answer = call("produce", "users", "--delete", given=lines('{"user_id": 1}', "2", '{"user_id": 3, "__op": "delete"}'))
    assert answer.code == 0
    assert "produced 3 rows" in answer.err
    found = sorted((r.key, r.deleted) for r in records(topic("users")))
    assert found == [(b"1", False), (b"1", True), (b"2", True), (b"3", True)]


def test_a_line_that_is_no_key_is_told_and_the_others_are_stored(call: Call) -> None:
    answer = call("produce", "users", *USERS, "--delete", given=lines('{"name": "a"}', "nonsense", '"x"', "7"))
    assert "line 1: a delete without 'user_id'" in answer.err
    assert "line 2: not JSON" in answer.err
    assert "line 3: column 'user_id' wants long" in answer.err
    assert "produced 1 row" in answer.err
    assert "3 rejected" in answer.err


@pytest.mark.parametrize("settings", [USERS, ["--key", "user_id"], []])
def test_what_consume_writes_produce_reads_back(call: Call, settings: list[str]) -> None:
    call("produce", "users", *settings, given=lines(ROW))
    with Producer(topic("users")) as producer:
        producer.delete({"user_id": 1})
    written = call("consume", "users", "--output", "jsonl").out
    assert [row.get("__op") for row in map(json.loads, written.splitlines())] == [None, "delete"]
    call("produce", "again", *settings, given=written)
    before, after = ([(r.key, r.value, r.deleted) for r in records(topic(name))] for name in ("users", "again"))
    assert after == before
    assert call("consume", "again", "--output", "jsonl").out == written


def test_a_key_that_is_no_text_comes_back_too(call: Call) -> None:
    call("create", "users")
    with Producer(topic("users")) as producer:
        producer.delete(b"\xff\x00")
    call("produce", "again", given=call("consume", "users", "--output", "jsonl").out)
    assert [r.key for r in records(topic("again"))] == [b"\xff\x00"]


def test_tables_show_what_is_gone(call: Call) -> None:
    call("produce", "users", "--key", "user_id", given=lines('{"user_id": 1}'))
    call("produce", "users", "--delete", given=lines("8"))
    shown = call("consume", "users", "--output", "table").out
    assert "delete" in shown
    assert "8" in shown, "the key of what is gone"
    assert "delete" in call("consume", "users", "--output", "table", "--no-meta").out


def test_rows_can_be_chosen_by_their_op(call: Call) -> None:
    call("produce", "users", *USERS, given=lines(ROW))
    call("produce", "users", "--delete", given=lines("1", "2"))
    assert len(call("consume", "users", "--where", "op = 'delete'").rows) == 2
    assert call("consume", "users", "--where", "op is null").rows == [json.loads(ROW)]


def test_csv_says_so_where_deletes_are_first_and_always_with_meta(call: Call) -> None:
    call("produce", "users", *USERS, "--delete", given=lines("1"))
    (row,) = csv.DictReader(io.StringIO(call("consume", "users", "--output", "csv").out))
    assert (row["user_id"], row["op"]) == ("1", "delete")
    (row,) = csv.DictReader(io.StringIO(call("consume", "users", "--output", "csv", "--meta").out))
    assert row["op"] == "delete"


def test_a_changelog_is_described_as_one(call: Call) -> None:
    from penstock.core.schema import Schema
    from penstock.log.open import open_log
    from penstock.log.port import TopicSpec

    open_log().create(TopicSpec("sales", schema=Schema.of("user string, n long"), key="user", writer="shop", changelog=True))
    said = call("describe", "sales").err
    assert "changelog" in said
    assert "flow shop" in said
    (listed,) = call("list", "--output", "jsonl").rows
    assert listed["kind"] == "changelog"
