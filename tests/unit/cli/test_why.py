"""penstock why, as a user calls it."""

import json
from pathlib import Path

import pytest

from penstock.cli.main import run
from unit.cli.looking import fill, flow_file, run_flow


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    fill(tmp_path / "home")
    return tmp_path / "home"


@pytest.fixture
def file(home: Path, tmp_path: Path) -> str:
    """The file of a flow that has run."""
    written = flow_file(tmp_path)
    run_flow(home, written)
    return written


def test_a_late_row_is_told_step_by_step(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["why", "views", "0", "3", file]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == 'views/0@3  {"page":"a","ms":20,"at":"2024-01-15T10:00:08Z"}'
    assert told[1].startswith("appended 20")
    assert told[3] == "flow pages"
    assert told[4].startswith("  views     read in epoch 0, opened ")
    assert told[4].endswith("time 2024-01-15T10:00:08Z; watermark 2024-01-15T10:00:10Z: a mark stands before it")
    assert told[5:] == [
        "  slow      passed on",
        "  per_page  window 2024-01-15T10:00:05Z to 2024-01-15T10:00:10Z: late, diverted: the watermark had reached its end",
        '            would have changed it: late="correct" and an allowed of more than 0 seconds',
        "  per_page  written to pages.late/0@0",
    ]


def test_for_scripts_it_is_one_json_object(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["why", "views", "0", "5", file, "--output", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["topic"], told["offset"], told["row"]["page"]) == ("views", 5, "a")
    (flow,) = told["flows"]
    late = next(step for step in flow["steps"] if step["fate"] == "diverted")
    assert (late["step"], late["window_end"], late["late_by_seconds"]) == ("per_page", "2024-01-15T10:00:05Z", 5.0)
    assert (flow["flow"], flow["read"], flow["note"]) == ("pages", True, None)


def test_without_the_file_what_was_written_down_is_told_and_how_to_learn_more(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["why", "views", "0", "3"]) == 0
    shown = capsys.readouterr()
    assert "per_page  late: its time was 2024-01-15T10:00:08Z" in shown.out
    assert "hint: give the flow's file too" in shown.err


def test_one_flow_can_be_asked_for(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["why", "views", "0", "3", "--flow", "pages"]) == 0
    assert run(["why", "views", "0", "3", "--flow", "other"]) == 3
    assert "flow other does not read topic views" in capsys.readouterr().err


def test_a_changed_flow_is_told_as_it_is_now_with_a_note(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["why", "views", "0", "0", flow_file(tmp_path, every="1 second")]) == 0
    told = capsys.readouterr().out
    assert "flow pages (its file has changed since it last ran" in told
    assert told.count("on time") == 5


@pytest.mark.parametrize(
    ("where", "what"),
    [
        (("nothing", "0", "0"), "no topic nothing"),
        (("views", "7", "0"), "topic views has no partition 7"),
        (("views", "0", "6"), "there is no record views/0@6 yet"),
    ],
)
def test_what_is_not_there_ends_with_3(where: tuple[str, ...], what: str, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["why", *where, file]) == 3
    assert what in capsys.readouterr().err


def test_a_record_that_nobody_has_read_ends_with_3(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["why", "views", "0", "0"]) == 3
    assert "no flow that has run here reads topic views" in capsys.readouterr().err
    assert run(["why", "views", "0", "0", flow_file(tmp_path)]) == 3
    assert "not yet read: the flow has come to offset 0" in capsys.readouterr().out


def test_the_help_teaches_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["why", "--help"]) == 0
    assert "penstock why orders 0 17 shop.py" in capsys.readouterr().out
