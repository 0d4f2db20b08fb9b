"""`penstock view` as people and scripts use it."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.cli.main import INTERRUPTED, run
from penstock.cli.output import print_table
from penstock.core.schema import Schema
from penstock.sinks.port import Delivery, Marker, SinkSpec
from penstock.sinks.view import ViewSink
from penstock.storage.memory import MemoryStorage
from penstock.testing.contracts.sink import ipc_file

SECOND = 1_000_000


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose view `sales` got ann = 1 in epoch 0, and ann = 2 and bob = 3 in epoch 1."""
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    storage = MemoryStorage()
    sink = _sink(tmp_path, storage, "sales", ("user",))
    for epoch, rows in enumerate([[("ann", 1, 10)], [("ann", 2, 20), ("bob", 3, 20)]]):
        storage.publish(f"{epoch}", ipc_file(_table(rows)))
        sink.deliver(Delivery(Marker("life", 1, epoch), [f"{epoch}"], 30 * SECOND, {"in": {0: 3}}, epoch * SECOND))
    sink.close()
    return tmp_path


def _sink(home: Path, storage: MemoryStorage, name: str, key: tuple[str, ...]) -> ViewSink:
    sink = ViewSink(
        SinkSpec("shop", name, Schema.of("user string, at timestamp, n long"), key), home / "views" / f"{name}.db", storage
    )
    sink.open("life", 1)
    return sink


def _table(rows: list[tuple[str, int, int]]) -> pa.Table:
    times = pa.array([t * SECOND for *_, t in rows], pa.int64())
    columns = {"user": [user for user, *_ in rows], "at": times.cast(pa.timestamp("us", "UTC")), "n": [n for _, n, _ in rows]}
    return pa.table(columns | {"__t": times, "__pos": [b"%d" % i for i in range(len(rows))]})


def _lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_show_writes_json_lines_into_a_pipe_with_times_that_end_in_z(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["view", "show", "sales"]) == 0
    assert _lines(capsys) == [
        {"user": "ann", "at": "1970-01-01T00:00:20Z", "n": 2},
        {"user": "bob", "at": "1970-01-01T00:00:20Z", "n": 3},
    ]


def test_show_answers_as_of_and_known_at(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for question in (["--as-of", "1970-01-01T00:00:15Z"], ["--known-at", "0"], ["--known-at", "1970-01-01T00:00:00.5Z"]):
        assert run(["view", "show", "sales", *question]) == 0
        assert [(line["user"], line["n"]) for line in _lines(capsys)] == [("ann", 1)]
    assert run(["view", "show", "sales", "--limit", "1"]) == 0
    assert len(_lines(capsys)) == 1


def test_show_writes_csv_and_tables(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["view", "show", "sales", "--output", "csv"]) == 0
    assert capsys.readouterr().out == "user,at,n\nann,1970-01-01T00:00:20Z,2\nbob,1970-01-01T00:00:20Z,3\n"
    assert run(["view", "show", "sales", "--output", "table"]) == 0
    table = capsys.readouterr().out
    assert "user" in table
    assert "1970-01-01T00:00:20Z" in table


def test_list_shows_flow_key_and_progress(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["view", "list"]) == 0
    found = {"view": "sales", "flow": "shop", "key": "user", "rows": 2, "epoch": 1, "watermark": "1970-01-01T00:00:30Z"}
    assert _lines(capsys) == [found]


def test_an_unknown_view_ends_with_3_and_an_idea(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["view", "show", "salse"]) == 3
    assert "did you mean sales" in capsys.readouterr().err


def test_get_prints_one_row_or_ends_with_3(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["view", "get", "sales", "bob"]) == 0
    assert _lines(capsys)[0]["n"] == 3
    assert run(["view", "get", "sales", "ann", "--history"]) == 0
    assert [(line["n"], line["__since"], line["__until"]) for line in _lines(capsys)] == [(1, 0, 1), (2, 1, None)]
    assert run(["view", "get", "sales", "zoe"]) == 3
    assert "no row zoe" in capsys.readouterr().err
    assert run(["view", "get", "sales", "ann", "too", "many"]) == 2


def test_get_takes_a_position_where_rows_have_no_key(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _sink(home, MemoryStorage(), "raw", ()).close()
    assert run(["view", "get", "raw", "orders/0@17"]) == 3
    assert run(["view", "get", "raw", "ann"]) == 2


def test_an_empty_view_says_why_on_standard_error(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _sink(home, MemoryStorage(), "bare", ()).close()
    assert run(["view", "show", "bare"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "has not finished an epoch" in said.err
    assert run(["view", "show", "sales", "--as-of", "1960-01-01"]) == 0
    assert "at that time" in capsys.readouterr().err


def test_open_cannot_be_asked_of_the_past(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["view", "show", "sales", "--open", "--known-at", "0"]) == 2
    assert run(["view", "show", "sales", "--open"]) == 0
    assert "nothing is open" in capsys.readouterr().err


def test_drop_asks_first_and_removes_the_view(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["view", "drop", "nothing", "--yes"]) == 3
    assert run(["view", "drop", "sales", "--yes"]) == 0
    assert run(["view", "show", "sales"]) == 3
    assert list((home / "views").iterdir()) == []


def test_follow_prints_what_is_there_and_waits_until_interrupted(home: Path) -> None:
    program = [sys.executable, "-c", "from penstock.cli.main import main; main()", "view", "follow", "sales"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert [json.loads(following.stdout.readline())["user"] for _ in range(2)] == ["ann", "bob"]
        following.send_signal(signal.SIGINT)
        assert following.wait(timeout=60) == INTERRUPTED


def test_data_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b]0;owned\x07\x9b2J‮[bold red]x[/]"
    table = pa.table({"text": [evil, None], "blob": [b"\x1b[2J", b""]})
    for output in ("table", "jsonl"):
        print_table(table, output, title="\x1b[31mtitle")
        out = capsys.readouterr().out
        assert not {"\x1b", "\x07", "\x9b", "‮"} & set(out)
        if output == "jsonl":
            assert json.loads(out.splitlines()[0])["text"] == evil
        else:
            assert "[bold red]x[/]" in out
    print_table(table.select(["text"]), "csv")
    assert evil in capsys.readouterr().out, "a file gets what the data holds"


def test_an_empty_table_has_a_heading_for_people_and_nothing_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    nothing = pa.table({"n": pa.array([], pa.int64())})
    print_table(nothing, "jsonl")
    assert capsys.readouterr().out == ""
    print_table(nothing, "csv")
    assert capsys.readouterr().out == "n\n"
    print_table(nothing, "table")
    assert "n" in capsys.readouterr().out
