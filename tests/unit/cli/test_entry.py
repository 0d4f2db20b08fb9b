"""Ctrl-C in the first moments of a command: exit code 130 and not a word, whatever is being loaded."""

import subprocess
import sys
from pathlib import Path

import pytest

# Interrupts itself at the import of a given number after the entry point was loaded.
PROGRAM = """
import os, signal, sys
from penstock.cli.entry import main
left = int(sys.argv.pop(1))
def count(event, _):
    global left
    if event == "import":
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(count)
main()
"""


def call(at: int, home: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", PROGRAM, str(at), "--home", str(home), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("at", [1, 2, 40, 120, 300])
def test_ctrl_c_while_modules_are_loaded_ends_quietly(at: int, tmp_path: Path) -> None:
    done = call(at, tmp_path, "topic", "list")
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.long
@pytest.mark.parametrize("words", [["topic", "list"], ["view", "list"], ["queue", "list"], ["doctor"], ["check", "x.py"]])
def test_ctrl_c_at_any_import_of_any_command_ends_quietly(words: list[str], tmp_path: Path) -> None:
    for at in range(1, 1200, 61):
        done = call(at, tmp_path, *words)
        assert "Traceback" not in done.stderr
        assert done.returncode == 130 or at > 300, (at, done)


def test_a_command_that_is_not_interrupted_ends_as_it_should(tmp_path: Path) -> None:
    done = call(0, tmp_path, "topic", "describe", "orders")
    assert done.returncode == 3
    assert done.stderr.startswith("error: ")
