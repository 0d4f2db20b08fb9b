"""penstock group, command by command, as a user calls it."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.log.groups.consumer import GroupConsumer
from penstock.log.groups.port import Source
from penstock.log.open import open_log
from penstock.log.port import Topic, TopicSpec
from unit.cli.calling import Call, calls_of


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")
    return calls_of("group")


@pytest.fixture
def views(call: Call) -> Topic:
    """Three partitions with 10, 8 and 9 records, read by nobody."""
    topic = open_log().create(TopicSpec("page-views", 3))
    for partition, count in enumerate((10, 8, 9)):
        topic.append(partition, pa.record_batch({"value": pa.array([b"x"] * count, pa.binary())}))
    return topic


def put(topic: Topic, *offsets: int, group: str = "web") -> None:
    source = Source(topic.spec.name, topic.id, topic.spec.partitions)
    open_log().groups().put(group, source, dict(enumerate(offsets)))


def test_list_tells_members_and_lag_of_every_group_and_flow(call: Call, views: Topic) -> None:
    put(views, 10, 8, 9, group="flow.shop")
    put(views, 4, 8, 0)
    answer = call("list", "--output", "jsonl")
    assert [(row["group"], row["topic"], row["members"], row["partitions"], row["lag_records"]) for row in answer.rows] == [
        ("flow.shop", "page-views", 0, 3, 0),
        ("web", "page-views", 0, 3, 15),
    ]
    assert answer.rows[0]["lag_seconds"] == 0
    assert 0 <= answer.rows[1]["lag_seconds"] < 300
    assert call("list", "--output", "table").out.count("page-views") == 2


def test_without_groups_it_says_how_one_is_made(call: Call) -> None:
    assert "made when its first member joins" in call("list").err
    assert call("describe", "web").code == 3


def test_describe_tells_owner_offset_lag_and_the_record_in_hand(call: Call, views: Topic) -> None:
    with GroupConsumer(None, "web", "page-views") as member:
        records = member.records()
        record = next(records)
        member.session.beat()
        answer = call("describe", "web", "--output", "jsonl")
    rows = {row["partition"]: row for row in answer.rows}
    assert [(row["offset"], row["end"], row["lag_records"]) for row in rows.values()] == [(0, 10, 10), (0, 8, 8), (0, 9, 9)]
    assert all(member.session.member.label in row["owner"] for row in rows.values())
    assert rows[record.partition]["in_hand"] == record.offset
    assert rows[record.partition]["in_hand_seconds"] >= 0
    assert [row["in_hand"] for number, row in rows.items() if number != record.partition] == [None, None]
    assert "1 alive, generation" in answer.err
    assert "was heard" in answer.err


def test_describe_says_when_the_topic_is_another_one(call: Call, views: Topic) -> None:
    put(views, 1, 1, 1)
    open_log().delete("page-views")
    answer = call("describe", "web", "--output", "jsonl")
    assert "was deleted or made again" in answer.err
    assert [row["lag_records"] for row in answer.rows] == [None] * 3


def test_reset_shows_what_it_would_do_and_does_it_when_told(call: Call, views: Topic) -> None:
    put(views, 4, 8, 0)
    answer = call("reset", "web", "page-views", "--to", "3", "--output", "jsonl")
    assert answer.code == 0
    assert answer.rows == [
        {"partition": 0, "offset": 4, "to": 3, "read_again": 1, "skipped": 0},
        {"partition": 1, "offset": 8, "to": 3, "read_again": 5, "skipped": 0},
        {"partition": 2, "offset": 0, "to": 3, "read_again": 0, "skipped": 3},
    ]
    assert "nothing changed; --yes would set it: 6 to be read again, 3 skipped" in answer.err
    assert [row["offset"] for row in call("describe", "web").rows] == [4, 8, 0]
    answer = call("reset", "web", "page-views", "--to", "3", "--yes")
    assert "group web is set" in answer.err
    assert [row["offset"] for row in call("describe", "web").rows] == [3, 3, 3]


@pytest.mark.parametrize(("to", "wanted"), [("earliest", [0, 0, 0]), ("latest", [10, 8, 9]), ("2000-01-01", [0, 0, 0])])
def test_reset_goes_to_the_ends_and_to_a_time(call: Call, views: Topic, to: str, wanted: list[int]) -> None:
    put(views, 4, 4, 4)
    assert call("reset", "web", "page-views", "--to", to, "--yes").code == 0
    assert [row["offset"] for row in call("describe", "web").rows] == wanted


def test_reset_of_one_partition_leaves_the_others(call: Call, views: Topic) -> None:
    put(views, 4, 4, 4)
    assert call("reset", "web", "page-views", "--to", "1", "--partition", "2", "--yes").code == 0
    assert [row["offset"] for row in call("describe", "web").rows] == [4, 4, 1]
    assert "has no partition 7" in call("reset", "web", "page-views", "--to", "1", "--partition", "7").err


def test_reset_is_refused_while_members_are_alive_and_names_them(call: Call, views: Topic) -> None:
    with GroupConsumer(None, "web", "page-views") as member:
        answer = call("reset", "web", "page-views", "--to", "earliest", "--yes")
    assert answer.code == 1
    assert "group web is reading page-views" in answer.err
    assert member.session.member.label in answer.err


def test_reset_of_a_flow_is_refused_with_what_to_do(call: Call, views: Topic) -> None:
    put(views, 4, 4, 4, group="flow.shop")
    answer = call("reset", "flow.shop", "page-views", "--to", "earliest", "--yes")
    assert answer.code == 2
    assert "belong to its state" in answer.err
    assert "penstock flow reset shop" in answer.err


def test_reset_starts_over_in_a_topic_that_was_made_again(call: Call, views: Topic) -> None:
    put(views, 4, 4, 4)
    open_log().delete("page-views")
    open_log().create(TopicSpec("page-views", 2))
    assert "all its partitions start over" in call("reset", "web", "page-views", "--to", "0", "--partition", "0").err
    answer = call("reset", "web", "page-views", "--to", "earliest", "--yes")
    assert [(row["partition"], row["offset"], row["to"]) for row in answer.rows] == [(0, None, 0), (1, None, 0)]
    with GroupConsumer(None, "web", "page-views") as member:
        assert member.partitions == [0, 1]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("nobody", "page-views", "--to", "0"), 3, "there is no group nobody"),
        (("web", "clicks", "--to", "0"), 3, "there is no topic clicks"),
        (("web", "page-views", "--to", "sometime"), 2, "is no place in a topic"),
        (("web", "page-views", "--to", "11"), 2, "ends at offset"),
        (("web", "page-views"), 2, "--to"),
    ],
)
def test_what_cannot_be_reset_is_told(call: Call, views: Topic, words: tuple[str, ...], code: int, said: str) -> None:
    put(views, 4, 4, 4)
    answer = call("reset", *words)
    assert answer.code == code
    assert said in answer.err


def test_delete_forgets_the_group_and_asks_first(call: Call, views: Topic) -> None:
    put(views, 4, 4, 4)
    assert call("delete", "web", given="n\n").code != 0
    assert call("describe", "web").code == 0
    assert call("delete", "web", "--yes").code == 0
    assert call("describe", "web").code == 3
    assert call("delete", "web", "--yes").code == 3


def test_follow_prints_again_and_again_until_interrupted(call: Call, views: Topic) -> None:
    put(views, 4, 4, 4)
    command = ["group", "describe", "web", "--follow", "--every", "10 ms", "--output", "jsonl"]
    program = [sys.executable, "-c", "from penstock.cli.main import main; main()"]
    shown = subprocess.Popen([*program, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert shown.stdout
    lines = [json.loads(shown.stdout.readline()) for _ in range(9)]
    shown.send_signal(signal.SIGINT)
    shown.stdout.read()
    shown.stdout.close()
    assert shown.wait() == 0
    assert [line["partition"] for line in lines] == [0, 1, 2] * 3
