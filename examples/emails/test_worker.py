"""The good emails all get through, the poison one ends among the dead letters once; also when the worker is killed in between."""

import re
import runpy
import shlex
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from penstock import Queue
from penstock.cli.main import run

HERE = Path(__file__).parent
GOOD = ["e1", "e2", "e4", "e6"]
KILLED_AT = """
import os, runpy, signal, time

def delivered(id):
    if id == {id!r}:
        os.kill(os.getpid(), signal.SIGKILL)
    elif id == "e4":
        time.sleep(60)  # the other worker is slow to be killed; e4 is still needed

runpy.run_path({worker!r})["main"](delivered, lease="1 second")
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for words in told("penstock queue create", "penstock queue send"):
        assert run([str(HERE / word) if word.endswith(".jsonl") else word for word in words[1:]]) == 0
    return tmp_path


def told(*starts: str) -> list[list[str]]:
    """The commands of the README that begin like this."""
    lines = re.findall(r"^\$ (.*)$", (HERE / "README.md").read_text(), re.MULTILINE)
    return [shlex.split(line) for line in lines if line.startswith(starts)]


def work() -> None:
    runpy.run_path(str(HERE / "worker.py"))["main"](retry="1 ms")


def outbox(place: Path) -> Counter[str]:
    return Counter(line.split()[0] for line in (place / "outbox.txt").read_text().splitlines())


def test_the_good_ones_get_through_and_the_poison_one_is_a_dead_letter_with_its_reason(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work()
    assert outbox(place) == Counter(GOOD)
    assert capsys.readouterr().out == "4 delivered, 5 tries failed, 1 rejected\n"
    dead = {letter.id: letter.dead for letter in Queue.open("emails").dead_letters.peek()}
    assert dead.keys() == {"e3", "e5"}
    assert dead["e5"]
    assert (dead["e5"].reason, dead["e5"].count) == ("the reader has unsubscribed", 1)
    assert dead["e3"]
    assert dead["e3"].reason.startswith("ValueError: 'cid at example.com' is no address\n")
    assert "worker.py" in dead["e3"].reason
    assert dead["e3"].count == 5


def test_an_email_that_was_repaired_is_delivered(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work()
    for words in told("penstock queue redrive"):
        assert run(words[1:]) == 0
    work()
    assert outbox(place) == Counter([*GOOD, "e3"])
    assert capsys.readouterr().out.endswith("1 delivered, 0 tries failed, 0 rejected\n")
    assert [letter.id for letter in Queue.open("emails").dead_letters.peek()] == ["e5"]


def test_a_worker_that_is_killed_loses_no_email(place: Path) -> None:
    for id in ("e1", "e4", "e4"):
        program = KILLED_AT.format(worker=str(HERE / "worker.py"), id=id)
        assert subprocess.run([sys.executable, "-c", program], check=False, stderr=subprocess.DEVNULL).returncode == -signal.SIGKILL
    work()
    sent = outbox(place)
    assert set(sent) == set(GOOD)
    assert sent["e4"] >= 2  # delivered before the queue knew
    assert Counter(letter.id for letter in Queue.open("emails").dead_letters.peek()) == {"e3": 1, "e5": 1}


def test_the_readme_shows_what_is_printed(place: Path) -> None:
    done = subprocess.run([sys.executable, str(HERE / "worker.py")], check=True, capture_output=True, text=True)
    first, *_, last = [line for line in done.stderr.splitlines() if line.startswith("emails: message e3")]
    assert f"$ python worker.py\n{first}\n…\n{last}\n{done.stdout}" in (HERE / "README.md").read_text()
