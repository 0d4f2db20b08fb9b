"""The demo's command, cues, engine and screen, without a JVM."""

import io
import signal
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from penstock.cli.main import run
from penstock.demo.cues import CUES, kill_at
from penstock.demo.engine import Engine
from penstock.demo.screen import Lines, Screen
from penstock.demo.watch import Sight, Window
from penstock.errors import EngineError

DEADLINE = 60.0


def test_without_java_the_demo_says_so_in_one_paragraph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert run(["demo", "--headless"]) == 1
    assert capsys.readouterr().err.startswith("error: Spark needs Java")


def test_a_home_with_something_in_it_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").touch()
    handler = signal.getsignal(signal.SIGTERM)
    assert run(["demo", "--headless", "--home", str(tmp_path)]) == 1
    assert "is not empty" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is handler


def test_every_engine_but_the_last_is_killed_at_another_point() -> None:
    assert [kill_at(kills, 50) for kills in range(3)] == ["shop/before_decide@19", "shop/after_decide@19", None]


def test_an_engine_lives_a_few_epochs_however_short_the_demo_is() -> None:
    assert kill_at(0, 5) == "shop/before_decide@4"


def ended(engine: Engine) -> None:
    deadline = time.monotonic() + DEADLINE
    while engine.running:
        assert time.monotonic() < deadline


def test_an_engine_that_fails_by_itself_is_told_with_its_own_words(tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    (tmp_path / "shop.py").write_text("flow = 1 +\n")
    engine.start(kill_at="shop/before_decide@4")
    ended(engine)
    with pytest.raises(EngineError, match="was not meant to") as raised:
        engine.was_killed()
    assert any("is not Python" in line for line in raised.value.detail)


def test_an_engine_killed_where_it_should_not_be_is_no_planned_kill(tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    (tmp_path / "shop.py").write_text("import os, signal\nos.killpg(os.getpgid(0), signal.SIGKILL)\n")
    engine.start(kill_at="shop/before_decide@4")
    ended(engine)
    assert engine.was_killed()
    engine.start()
    ended(engine)
    with pytest.raises(EngineError, match="was not meant to"):
        engine.was_killed()


def test_what_the_engine_says_is_read_once_and_in_whole_lines(tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    assert engine.said() == []
    engine.log.write_text("home /somewhere\nstarting Sp")
    assert engine.said() == ["home /somewhere"]
    engine.log.write_text("home /somewhere\nstarting Spark\n")
    assert engine.said() == ["starting Spark"]
    assert engine.said() == []


def seen() -> Sight:
    begins = [datetime(2026, 1, 15, 9, n, tzinfo=UTC) for n in range(12)]
    windows = [Window(begin, Counter(tea=10_000, bread=9), Counter(tea=17_500_000_000)) for begin in begins]
    sight = Sight(epoch=5, delivered=5, rows=12_000, rate=3000.0, sales=windows, takings=windows[:2], unpaid=12_345)
    sight.last_unpaid.extend({"order_id": f"o{n:07d}", "at": windows[0].start, "cents": 1250} for n in range(8))
    return sight


@pytest.mark.parametrize(("width", "height"), [(60, 24), (80, 24), (110, 24), (140, 45)])
def test_the_screen_fits_the_terminal_and_shows_the_newest(width: int, height: int) -> None:
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, force_terminal=True, color_system=None)
    with Screen(console, "a shop", time.monotonic()) as screen:
        for cue in CUES * 5:
            screen.tell(cue.died.format(n=18, seen=17), "bad")
        screen.show(seen(), "running", 12_345)
    lines = out.getvalue().rstrip("\n").split("a shop")[-1].splitlines()
    assert len(lines) < height
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for shown in ("09:11", "10,009", "175,000,000", "o0000007", "12.50", "12,345 orders sent"):
        assert shown in text
    for shown in ("running · epoch 5", "kill -9 in epoch 18"):
        assert shown in text


def test_without_a_terminal_what_happens_is_a_line_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with Lines(time.monotonic()) as lines:
        lines.tell("the shop is open")
        lines.show(seen(), "running", 1)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith("s  the shop is open\n")
