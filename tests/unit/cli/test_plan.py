"""penstock plan, as a user calls it: the steps, and the timeline of a topic."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from penstock.cli.main import run
from unit.cli.looking import fill, flow_file


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    fill(tmp_path / "home")
    return flow_file(tmp_path)


def records(svg: Path) -> list[str]:
    titles = ElementTree.parse(svg).iter("{http://www.w3.org/2000/svg}title")
    return [title.text.split()[0] for title in titles if title.text and title.text.startswith("views/0@")]


def test_the_steps_are_shown_as_text_and_as_a_diagram(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", file]) == 0
    assert capsys.readouterr().out.startswith("flow pages\n")
    assert run(["plan", file, "--format", "mermaid"]) == 0
    assert capsys.readouterr().out.startswith("flowchart LR\n")


def test_the_timeline_is_a_picture_of_the_last_records(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", file, "--timeline"]) == 0
    assert capsys.readouterr().err == "timeline.svg: flow pages, views/0, offsets 0 to 5: 2 late\n"
    assert records(tmp_path / "timeline.svg") == [f"views/0@{offset}" for offset in range(6)]


def test_a_stretch_and_a_file_can_be_chosen(file: str, tmp_path: Path) -> None:
    out = tmp_path / "some.svg"
    assert (
        run(["plan", file, "--timeline", "--topic", "views", "--partition", "0", "--from", "2", "--to", "4", "--out", str(out)])
        == 0
    )
    assert records(out) == ["views/0@2", "views/0@3"]


def test_a_stretch_can_be_chosen_by_append_time(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", file, "--timeline", "--from", "2020-01-01T00:00:00Z"]) == 0
    assert "offsets 0 to 5" in capsys.readouterr().err
    assert run(["plan", file, "--timeline", "--to", "2020-01-01T00:00:00Z"]) == 2
    assert "there is no record to draw in views/0\n  it holds the offsets 0 to 5" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "code", "what"),
    [
        (("--topic", "orders"), 3, "reads topic orders"),
        (("--partition", "9"), 3, "topic views has no partition 9"),
        (("--from", "6"), 2, "there is no record to draw"),
        (("--from", "noon"), 2, "cannot read time 'noon'"),
    ],
)
def test_what_cannot_be_drawn_is_told(
    options: tuple[str, ...], code: int, what: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", file, "--timeline", *options]) == code
    assert what in capsys.readouterr().err


def test_the_help_teaches_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--help"]) == 0
    assert "penstock plan shop.py --timeline" in capsys.readouterr().out
