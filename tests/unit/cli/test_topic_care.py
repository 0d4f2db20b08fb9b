"""penstock topic alter and clean."""

import json
from pathlib import Path

import pytest

from penstock.cli.main import run
from penstock.cli.topic.care import size_of
from penstock.errors import BadInput
from penstock.log.groups.port import Source
from penstock.log.open import open_log

LINES = ["123", "456", "123", "789", "456", "123"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    return tmp_path


def produce(home: Path, name: str = "users") -> None:
    seen: dict[str, int] = {}
    lines = []
    for user in LINES:
        seen[user] = seen.get(user, 0) + 1
        lines.append(json.dumps({"user": f"user:{user}", "value": f"V{seen[user]}"}))
    (home / "users.jsonl").write_text("\n".join(lines) + "\n")
    assert run(["topic", "produce", name, str(home / "users.jsonl"), "--key", "user"]) == 0


def consumed(capsys: pytest.CaptureFixture[str], name: str = "users") -> list[tuple[int, str, str]]:
    capsys.readouterr()
    assert run(["topic", "consume", name, "--output", "jsonl", "--meta"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [(row["offset"], row["user"], row["value"]) for row in rows]


def test_a_topic_is_compacted_from_the_command_line(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    produce(home)
    assert run(["topic", "alter", "users", "--compact"]) == 0
    capsys.readouterr()
    assert run(["topic", "clean", "users"]) == 0
    assert "users: 6 → 3 rows · " in capsys.readouterr().err
    assert consumed(capsys) == [(3, "user:789", "V1"), (4, "user:456", "V2"), (5, "user:123", "V3")]
    assert run(["topic", "clean"]) == 0
    assert capsys.readouterr().err == "users: nothing to do\n"
    assert run(["topic", "list", "--output", "jsonl"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rows"], told["keeps"]) == (3, "the latest of every key, deletes 1 day")


def test_settings_are_shown_and_taken_back(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topic", "create", "t", "--retain", "7 days", "--retain-bytes", "10GB", "--hold", "1 hour"]) == 0
    capsys.readouterr()
    assert run(["topic", "describe", "t"]) == 0
    out = capsys.readouterr().err
    assert "keeps          7 days · 10,000,000,000 bytes a partition" in out
    assert "hold           1 hour longer, for readers that are behind" in out
    assert run(["topic", "alter", "t", "--retain", "none", "--retain-bytes", "none"]) == 0
    assert run(["topic", "describe", "t"]) == 0
    assert "keeps          all\n" in capsys.readouterr().err


def test_what_goes_unread_is_told_by_clean_describe_and_doctor(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    produce(home)
    log = open_log()
    log.groups().put("slow", Source("users", log.topic("users").id, 1), {0: 2})
    assert run(["topic", "alter", "users", "--retain", "0 seconds"]) == 0
    capsys.readouterr()
    assert run(["topic", "clean", "users"]) == 0
    assert "waiting for slow" in capsys.readouterr().err
    assert log.topic("users").ends()[0].first == 0
    assert run(["topic", "alter", "users", "--hold", "0 seconds"]) == 0
    capsys.readouterr()
    assert run(["topic", "clean", "users"]) == 0
    told = "offsets 2 to 5 were removed although slow has not read them"
    assert f"warning: topic users, partition 0: {told}" in capsys.readouterr().err
    assert run(["topic", "describe", "users", "--output", "jsonl"]) == 0
    assert "offsets 2 to 5 of partition 0 were removed; slow had not read them" in capsys.readouterr().err
    run(["doctor"])
    assert "offsets 2 to 5 of partition 0 were removed; slow had not read them" in capsys.readouterr().out


def test_partitions_are_added_and_what_that_means_is_said(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    produce(home)
    capsys.readouterr()
    assert run(["topic", "alter", "users", "--partitions", "3"]) == 0
    assert capsys.readouterr().err == (
        "altered topic users\n"
        "it has 3 partitions now, 1 before\n"
        "rows of a key may from now on lie in another partition: their order is kept in each, not across them\n"
        "  hint: where order by key matters, make a new topic and write the rows again\n"
    )
    produce(home)
    assert sorted(open_log().topic("users").ends()) == [0, 1, 2]
    assert run(["topic", "alter", "users", "--partitions", "2"]) == 2
    assert "records would be lost" in capsys.readouterr().err


def test_columns_are_added(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topic", "create", "t", "--schema", "a long"]) == 0
    assert run(["topic", "alter", "t", "--add-columns", "b string, c double"]) == 0
    assert open_log().topic("t").spec.schema.names == ["a", "b", "c"]
    assert run(["topic", "alter", "t", "--add-columns", "a string"]) == 2
    assert run(["topic", "alter", "t"]) == 2
    assert "there is nothing to alter in topic t" in capsys.readouterr().err
    assert run(["topic", "alter", "none", "--compact"]) == 3
    assert run(["topic", "clean", "none"]) == 3


@pytest.mark.parametrize(("text", "size"), [("1", 1), ("10GB", 10**10), ("1.5 kb", 1500), ("2MiB", 2 << 20), ("3 T", 3 * 10**12)])
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert size_of(text, "--retain-bytes") == size


@pytest.mark.parametrize("text", ["", "many", "-1", "1 PB", "1 GB more"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is no size"):
        size_of(text, "--retain-bytes")
