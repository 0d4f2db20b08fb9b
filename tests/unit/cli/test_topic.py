"""penstock topic, command by command, as a user calls it."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.core.time import FOREVER
from penstock.log.consumer import records
from penstock.log.open import open_log
from penstock.log.port import Topic
from unit.cli.calling import Call, calls_of

ORDERS = "order_id string, user_id long, amount double, at timestamp"


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs a command in a home of its own."""
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")
    return calls_of("topic")


def topic(name: str) -> Topic:
    return open_log().topic(name)


def order(n: int, amount: Any = 1.0) -> str:
    return json.dumps({"order_id": f"o{n}", "user_id": n, "amount": amount, "at": f"2024-01-15T10:00:{n:02d}Z"})


def lines(*rows: str) -> str:
    return "\n".join(rows) + "\n"


def test_create_makes_a_topic_with_all_its_settings_and_describe_shows_them(call: Call) -> None:
    settings = ["--partitions", "3", "--schema", ORDERS, "--time", "at", "--key", "user_id", "--partition-by", "user_id % 3"]
    made = call("create", "orders", *settings, "--durability", "os", "--future", "2 hours", "--max-record", "5000")
    assert (made.code, made.err) == (0, "topic orders has 3 partitions\n")
    call("produce", "orders", given=lines(order(0), order(1), order(4)))
    told = call("describe", "orders")
    for text in (ORDERS, topic("orders").id, "3 (by user_id % 3)", "os", "2 hours", "5,000 bytes"):
        assert text in told.err
    answer = call("describe", "orders", "--output", "jsonl")
    assert [(r["partition"], r["first"], r["next"], r["rows"], r["greatest_time"]) for r in answer.rows] == [
        (0, 0, 1, 1, "2024-01-15T10:00:00Z"),
        (1, 0, 2, 2, "2024-01-15T10:00:04Z"),
        (2, 0, 0, 0, None),
    ]
    assert all(r["bytes"] > 0 for r in answer.rows[:2])


def test_create_refuses_what_is_there_and_what_cannot_be(call: Call) -> None:
    call("create", "orders")
    assert call("create", "orders").code == 1
    assert "there is no type" in call("create", "a", "--schema", "x sometype").err
    assert call("create", "a", "--schema", "x int", "--key", "y").code == 2
    assert call("create", "a", "--schema", "x int", "--time", "x").code == 2
    assert call("create", "a", "--partition-by", "import os").code == 2
    assert call("create", "a", "--partitions", "0").code == 2
    assert call("create", "a", "--future", "soon").code == 2
    assert [r["topic"] for r in call("list").rows] == ["orders"]


def test_list_says_where_it_looked_if_there_is_nothing(call: Call, tmp_path: Path) -> None:
    answer = call("list")
    assert (answer.code, answer.out) == (0, "")
    assert str(tmp_path / "home") in answer.err
    assert not (tmp_path / "home").exists()


def test_list_shows_kind_partitions_and_rows(call: Call) -> None:
    call("create", "typed", "--schema", "a int", "--partitions", "2")
    call("produce", "raw", given='{"a": 1}')
    rows = call("list", "--output", "jsonl").rows
    assert [(r["topic"], r["kind"], r["partitions"], r["rows"], r["last_append"] is None) for r in rows] == [
        ("raw", "raw", 1, 1, False),
        ("typed", "typed", 2, 0, True),
    ]
    assert "typed" in call("list", "--output", "table").out


def test_produce_makes_a_raw_topic_that_keeps_lines_as_they_are(call: Call) -> None:
    given = '{"b":1,  "a":[1.50]}\r\n\n{"x": "é\\u0000"}'
    answer = call("produce", "events", given=given)
    assert (answer.code, answer.err) == (0, "produced 2 rows to events (1 partition) · 0 rejected\n")
    assert [r.value for r in records(topic("events"))] == [b'{"b":1,  "a":[1.50]}\r', '{"x": "é\\u0000"}'.encode()]
    assert call("consume", "events").rows == [{"b": 1, "a": [1.5]}, {"x": "é\x00"}]


def test_produce_makes_a_typed_topic_if_a_schema_is_given_and_writes_by_key(call: Call) -> None:
    rows = [order(n) for n in range(30)]
    answer = call(
        "produce", "orders", "--schema", ORDERS, "--time", "at", "--key", "user_id", "--partitions", "3", given=lines(*rows)
    )
    assert answer.err == "produced 30 rows to orders (3 partitions) · 0 rejected\n"
    stored = list(records(topic("orders")))
    assert {r.key for r in stored} == {str(n).encode() for n in range(30)}
    assert len({r.partition for r in stored}) == 3
    assert sorted(r["user_id"] for r in call("consume", "orders").rows) == list(range(30))


def test_produce_reads_a_file_and_says_every_line_it_refused(call: Call, tmp_path: Path) -> None:
    file, rejects = tmp_path / "orders.jsonl", tmp_path / "rejects.jsonl"
    file.write_bytes(b"\n".join([order(1).encode(), b"", b"{", order(2, "x").encode(), b'{"a": "\xff"}', order(3).encode()]))
    answer = call("produce", "orders", str(file), "--schema", ORDERS, "--rejects", str(rejects))
    assert answer.code == 0
    assert answer.err.splitlines() == [
        "line 3: not JSON: unexpected end of data at column 2",
        "line 4: column 'amount' wants double, found the text 'x'",
        "line 5: not UTF-8: byte 0xff at column 8",
        "produced 2 rows to orders (1 partition) · 3 rejected",
    ]
    kept = [json.loads(line) for line in rejects.read_bytes().splitlines()]
    assert [(r["line"], r["value"]) for r in kept] == [(3, "{"), (4, order(2, "x")), (5, '{"a": "\\xff"}')]


def test_produce_tells_of_twenty_refused_lines_and_counts_the_rest(call: Call, tmp_path: Path) -> None:
    answer = call("produce", "t", "--rejects", str(tmp_path / "r"), given="x\n" * 50)
    assert answer.err.count("not JSON") == 20
    assert answer.err.splitlines()[-2:] == [
        "produced 0 rows to t (1 partition) · 50 rejected",
        "no line fits the topic: penstock topic describe t",
    ]
    assert answer.code == 1
    assert len((tmp_path / "r").read_bytes().splitlines()) == 50


def test_a_byte_order_mark_is_taken_and_utf_16_is_told(call: Call) -> None:
    assert call("produce", "t", "--schema", "a long", given=b'\xef\xbb\xbf{"a": 1}\n{"a": 2}\n').code == 0
    assert call("consume", "t").rows == [{"a": 1}, {"a": 2}]
    answer = call("produce", "t", given='{"a": 1}\n'.encode("utf-16"))
    assert answer.code == 2
    assert "the lines are UTF-16" in answer.err
    call("produce", "lines", "--format", "raw", given=b"\xef\xbb\xbfa\n")
    assert [bytes(r.value) for r in records(open_log().topic("lines"))] == [b"\xef\xbb\xbfa"], "raw lines stay as they are"


def test_what_describe_prints_for_programs_is_rows_alone(call: Call) -> None:
    call("create", "t", "--schema", "a long")
    answer = call("describe", "t")
    assert [row["partition"] for row in answer.rows] == [0]
    assert "schema" in answer.err
    answer = call("describe", "t", "--output", "table")
    assert answer.out.splitlines()[0].split() == ["topic", "t"]


def test_produce_stops_at_the_first_refused_line_if_told_to(call: Call) -> None:
    given = lines(order(1), order(2), "no", order(4), "no")
    answer = call("produce", "orders", "--on-error", "stop", "--mark", "end", given=given)
    assert answer.code == 1
    assert answer.err.splitlines()[0].startswith("line 3: not JSON")
    assert answer.err.splitlines()[1:] == [
        "stopped at the first line that was refused: produced 2 rows to orders (1 partition) · 1 rejected"
    ]
    assert [r["user_id"] for r in call("consume", "orders").rows] == [1, 2]
    assert topic("orders").ends()[0].mark < FOREVER


def test_produce_refuses_lines_over_the_record_limit_by_number(call: Call) -> None:
    call("create", "t", "--max-record", "100")
    answer = call(
        "produce",
        "t",
        given=lines('{"a": 1}', '{"a": "' + "x" * 1_000_000 + '"}', '{"a": 3}', '{"a": "' + "x" * 92 + '"}', '{"a": 5}'),
    )
    assert "line 2: is larger than the record limit of the topic, 100 bytes" in answer.err
    assert "line 4: is larger" in answer.err
    assert [r["a"] for r in call("consume", "t").rows] == [1, 3, 5]


def test_produce_to_one_partition_and_no_more_rows_than_asked_for(call: Call) -> None:
    call("create", "t", "--partitions", "3")
    given = lines(*(f'{{"n": {n}}}' if n % 2 else "no" for n in range(40)))
    answer = call("produce", "t", "--partition", "2", "--max", "7", "--batch", "4", given=given)
    assert answer.err.endswith("produced 7 rows to t (3 partitions) · 7 rejected\n")
    assert [(r.partition, json.loads(bytes(r.value))["n"]) for r in records(topic("t"))] == [(2, n) for n in range(1, 14, 2)]
    assert call("produce", "t", "--partition", "3", given="{}").code == 2


def test_produce_keeps_any_line_if_it_is_raw(call: Call) -> None:
    call("produce", "t", "--format", "raw", given=b"plain\n\n\xff\x00{\nlast")
    assert [r.value for r in records(topic("t"))] == [b"plain", b"", b"\xff\x00{", b"last"]
    assert call("consume", "t").rows == [{"value": "plain"}, {"value": ""}, {"value": "base64:/wB7"}, {"value": "last"}]
    call("create", "typed", "--schema", "a int")
    assert call("produce", "typed", "--format", "raw", given="x").code == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--partitions", "2"], "it has 3, not 2"),
        (["--schema", "a long"], "it has a int, not a long"),
        (["--key", "a"], "it has none, not a"),
        (["--durability", "memory"], "it has fsync, not memory"),
        (["--partition-by", "a % 2"], "it has none, not a % 2"),
    ],
)
def test_produce_refuses_settings_that_the_topic_does_not_have(call: Call, words: list[str], told: str) -> None:
    call("create", "t", "--schema", "a int", "--partitions", "3")
    answer = call("produce", "t", *words, given='{"a": 1}')
    assert answer.code == 2
    assert told in answer.err
    assert call("produce", "t", "--partitions", "3", "--schema", "a int", "--durability", "fsync", given='{"a": 1}').code == 0


def test_produce_marks_the_topic_at_the_end(call: Call) -> None:
    call("produce", "t", "--partitions", "2", "--mark", "end", given="{}")
    assert {end.mark for end in topic("t").ends().values()} == {FOREVER}
    assert call("produce", "t", "--mark", "soon", given="{}").code == 2


def test_mark_promises_a_time_for_one_partition_or_all(call: Call) -> None:
    call("create", "t", "--partitions", "2")
    assert call("mark", "t", "2024-01-15T11:00:00Z").err == "marked t (2 partitions) with 2024-01-15T11:00:00Z\n"
    assert call("mark", "t", "end", "--partition", "1").err == "marked t/1 with +∞\n"
    assert [r["greatest_mark"] for r in call("describe", "t", "--output", "jsonl").rows] == ["2024-01-15T11:00:00Z", "+∞"]
    assert call("mark", "t", "9000-01-01T00:00:00Z").code == 2
    assert call("mark", "t", "end", "--partition", "2").code == 2
    assert call("mark", "t", "tomorrow").code == 2


def test_delete_asks_unless_told_not_to(call: Call) -> None:
    call("produce", "t", given="{}\n{}")
    assert call("delete", "t", given="n\n").code == 130
    assert len(call("consume", "t").rows) == 2
    assert call("delete", "t", given="y\n").code == 0
    call("produce", "t", given="{}")
    answer = call("delete", "t", "--yes")
    assert (answer.code, answer.err) == (0, "deleted topic t with 1 row\n")
    assert call("list").out == ""


@pytest.mark.parametrize(
    "words", [["describe", "order"], ["consume", "order"], ["mark", "order", "end"], ["delete", "order", "--yes"]]
)
def test_a_topic_that_is_not_there_is_told_with_what_is_close(call: Call, words: list[str]) -> None:
    call("create", "orders")
    answer = call(*words)
    assert answer.code == 3
    assert "did you mean orders?" in answer.err


def test_describe_measures_disorder_row_by_row(call: Call) -> None:
    call("create", "orders", "--schema", ORDERS, "--time", "at", "--partitions", "2")
    call("produce", "orders", "--partition", "0", given=lines(order(30), order(12), order(31)))
    call("produce", "orders", "--partition", "0", given=lines(order(20)))
    assert [r["disorder_seconds"] for r in call("describe", "orders", "--output", "jsonl").rows] == [18.0, None]


@pytest.mark.parametrize("command", ["create", "list", "describe", "produce", "consume", "mark", "delete"])
def test_the_help_of_each_command_teaches_with_an_example(call: Call, command: str) -> None:
    answer = call(command, "--help")
    assert answer.code == 0
    assert f"penstock topic {command}" in answer.out
