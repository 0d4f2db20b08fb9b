"""penstock topic consume: what is read, which rows, and how they are shown."""

import csv
import io
import json
from typing import Any

import pyarrow as pa
import pytest

from penstock.core.columns import KEY, VALUE
from penstock.log.consumer import last_rows
from penstock.log.memory import MemoryLog
from penstock.log.open import open_log
from penstock.log.port import TopicSpec
from penstock.log.producer import Producer

from .test_topic import ORDERS, Call, call, lines, order, topic

__all__ = ["call"]


@pytest.fixture
def orders(call: Call) -> Call:
    call("create", "orders", "--schema", ORDERS, "--time", "at")
    for start in (0, 5):
        call("produce", "orders", given=lines(*(order(n, amount=n * 10.0) for n in range(start, start + 5))))
    return call


def users(call: Call, *words: str) -> list[Any]:
    answer = call("consume", "orders", *words)
    assert answer.code == 0, answer.err
    return [row["user_id"] for row in answer.rows]


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ([], list(range(10))),
        (["--from", "3"], [3, 4, 5, 6, 7, 8, 9]),
        (["--from", "3", "--to", "6"], [3, 4, 5]),
        (["--from", "latest"], []),
        (["--from", "2024-01-15T10:00:07Z"], [7, 8, 9]),
        (["--from", "2024-01-15T10:00:07Z", "--to", "2024-01-15T10:00:08"], [7]),
        (["--max", "2"], [0, 1]),
        (["--from", "4", "--max", "3"], [4, 5, 6]),
        (["--follow", "--max", "7"], list(range(7))),
        (["--partition", "0", "--to", "1"], [0]),
    ],
)
def test_rows_are_read_from_and_to_where_it_is_said(orders: Call, words: list[str], wanted: list[int]) -> None:
    assert users(orders, *words) == wanted


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ("amount > 70", [8, 9]),
        ("amount > 70 and user_id = 9", [9]),
        ("at >= '2024-01-15T10:00:08Z'", [8, 9]),
        ("at between '2024-01-15T10:00:01' and '2024-01-15T11:00:02+01:00'", [1, 2]),
        ("at in ('2024-01-15T10:00:03Z', '2024-01-15')", [3]),
        ("order_id like 'o7%' or offset = 2", [2, 7]),
        ("user_id % 5 = 0 and amount is not null", [0, 5]),
        ("key is null and partition = 0 and time < '2024-01-15T10:00:01Z'", [0]),
        ("1 = 2", []),
        ("null", []),
    ],
)
def test_a_condition_chooses_rows(orders: Call, where: str, wanted: list[int]) -> None:
    assert users(orders, "--where", where) == wanted


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--where", "amout > 1"], "no column 'amout'"),
        (["--where", "amount"], "neither true nor false"),
        (["--where", "amount >"], "cannot read the condition"),
        (["--where", "order_id > 5"], "cannot use the condition"),
        (["--where", "at > 'soon'"], "cannot read time"),
        (["--where", "select 1"], "condition"),
        (["--where", "(" * 3000 + "1" + ")" * 3000], "cannot read the condition"),
        (["--from", "yesterday"], "no place in a topic"),
        (["--from", "-5"], "no place in a topic"),
        (["--partition", "4"], "no partition 4"),
        (["--max", "0"], "--max"),
    ],
)
def test_what_cannot_be_read_is_told_and_is_wrong_usage(orders: Call, words: list[str], told: str) -> None:
    answer = orders("consume", "orders", *words)
    assert (answer.code, answer.out) == (2, "")
    assert told in answer.err


def test_conditions_see_the_fields_of_json_values(call: Call) -> None:
    call("produce", "t", given=lines('{"a": 1, "b": "x"}', '{"a": 2}', '{"c": {"d": 3}}'))
    call("produce", "t", given=lines('{"a": "text", "offset": 7}'))
    assert call("consume", "t", "--where", "b = 'x'").rows == [{"a": 1, "b": "x"}]
    assert call("consume", "t", "--where", "nowhere is null").out.count("\n") == 4
    assert call("consume", "t", "--where", "a > 1", "--to", "3").rows == [{"a": 2}]
    assert call("consume", "t", "--where", "offset = 7", "--meta").rows[0]["_offset"] == 3


def test_values_that_cannot_be_compared_are_left_out_and_counted(call: Call) -> None:
    call("produce", "t", given=lines('{"a": 1}', '{"a": "x"}', '{"a": 3}', '{"a": [1]}'))
    answer = call("consume", "t", "--where", "a > 1")
    assert (answer.code, answer.rows) == (0, [{"a": 3}])
    assert answer.err == "2 rows were left out: their fields cannot be compared like this\n"
    assert call("consume", "t", "--where", "a > 0", "--max", "1").rows == [{"a": 1}]


def test_json_lines_give_rows_back_as_they_were_written_and_more_if_asked_for(orders: Call) -> None:
    first = orders("consume", "orders", "--max", "1").out
    assert json.loads(first) == {"order_id": "o0", "user_id": 0, "amount": 0.0, "at": "2024-01-15T10:00:00Z"}
    orders("produce", "copy", "--schema", ORDERS, given=orders("consume", "orders").out)
    assert orders("consume", "copy").out == orders("consume", "orders").out
    [row] = orders("consume", "orders", "--max", "1", "--meta").rows
    assert (row["partition"], row["offset"], row["key"], row["time"], row["headers"]) == (0, 0, None, "2024-01-15T10:00:00Z", None)


def test_csv_has_one_header_and_tells_of_fields_it_left_out(call: Call) -> None:
    call("produce", "t", given=lines('{"a": 1, "b": "x,\\"y\\""}', '{"a": 2, "b": [1, true]}'))
    call("produce", "t", given=lines('{"a": null, "c": true}'))
    answer = call("consume", "t", "--output", "csv")
    assert list(csv.reader(io.StringIO(answer.out))) == [["a", "b"], ["1", 'x,"y"'], ["2", "[1,true]"], ["", ""]]
    assert answer.err == "left out, as the first rows have no such field: c\n"


def test_tables_show_position_and_row_even_where_types_change(call: Call) -> None:
    for given in ('{"a": 1}', '{"a": "text"}', '{"a": {"b": 1}}'):
        call("produce", "t", given=given)
    out = call("consume", "t", "--output", "table").out
    assert all(text in out for text in ("partition", "offset", "time", "text"))
    assert "partition" not in call("consume", "t", "--output", "table", "--no-meta").out
    assert call("consume", "t", "--output", "table", "--max", "1", "--follow").out.count("partition") == 1


def test_what_is_followed_has_one_header(call: Call) -> None:
    for n in range(3):
        call("produce", "t", "--schema", "n long", given=f'{{"n": {n}}}\n')
    out = call("consume", "t", "--output", "table", "--max", "3", "--follow").out
    assert out.count("partition") == 1
    assert [line.split()[::3] for line in out.splitlines()[-3:]] == [["0", str(n)] for n in range(3)]


def test_keys_and_headers_are_shown_as_text(call: Call) -> None:
    call("create", "t")
    with Producer(topic("t")) as producer:
        producer.send(b'{\n"a": 1}', key=b"\xff", headers={"h": "x"})
    [row] = call("consume", "t", "--meta").rows
    assert (row["key"], row["headers"]) == ("base64:/w==", {"h": "x"})
    assert call("consume", "t").out == '{"a":1}\n'
    assert "base64" in call("consume", "t", "--output", "table").out
    assert open_log().topics() == ["t"]


def test_the_last_rows_are_found_from_the_end(orders: Call) -> None:
    assert users(orders, "--last", "3") == [7, 8, 9]
    assert users(orders, "--last", "3", "--max", "1") == [7]
    assert users(orders, "--last", "100") == list(range(10))
    assert orders("consume", "orders", "--last", "3", "--from", "1").code == 2


def test_the_last_rows_are_found_where_most_of_what_lies_before_them_was_compacted_away() -> None:
    log = MemoryLog()
    topic = log.create(TopicSpec("t", 2, compact=True))
    for n in range(40):
        keys = pa.array([b"same" if 2 < n < 37 else b"%d" % n])
        topic.append(0, pa.record_batch({VALUE: pa.array([b"%d" % n]), KEY: keys}))
    log.clean("t")
    assert [int(o) for chunk in topic.read(0) for o in chunk.offsets] == [0, 1, 2, 36, 37, 38, 39]
    assert last_rows(topic, 3) == {0: 37, 1: 0}
    assert last_rows(topic, 5, [0]) == {0: 2}
    assert last_rows(topic, 100, [0]) == {0: 0}
