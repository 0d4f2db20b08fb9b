"""Commands: the row on standard input, the key in the environment, no shell."""

import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import BadInput
from penstock.sinks import command
from penstock.sinks.actions.port import Intent, NotDone, Refused
from penstock.sinks.actions.processes import Command

INTENT = Intent(0, "key-1", {"id": 1}, b'{"id":1}', 0)


def running(program: str, *words: str, **given: Any) -> Command:
    return Command(command([sys.executable, "-c", program, *words], **given))


def test_the_row_and_its_key_are_given(tmp_path: Path) -> None:
    program = (
        "import os, sys; open(sys.argv[1], 'w').write(os.environ['PENSTOCK_IDEMPOTENCY_KEY'] + sys.stdin.read() + sys.argv[2])"
    )
    running(program, str(tmp_path / "out"), "$(touch x); `touch y` | z").do(INTENT)
    assert (tmp_path / "out").read_text() == 'key-1{"id":1}\n$(touch x); `touch y` | z'


@pytest.mark.parametrize(
    ("program", "kind", "reason"),
    [
        ("import sys; sys.exit('no \\x1b[31m luck')", NotDone, r"ended with 1: no \\x1b\[31m luck"),
        ("import sys; print('x' * 10_000_000); sys.exit(65)", Refused, "ended with 65: x{499}$"),
        ("import os; os.kill(os.getpid(), 9)", NotDone, "was ended by SIGKILL"),
        ("import sys; sys.stdin.close(); sys.exit(3)", NotDone, "ended with 3"),
    ],
)
def test_what_an_end_means(program: str, kind: type[NotDone], reason: str) -> None:
    with pytest.raises(NotDone, match=reason) as failed:
        running(program).do(INTENT)
    assert type(failed.value) is kind


def test_a_program_that_takes_too_long_is_killed_with_what_it_started(tmp_path: Path) -> None:
    child = f"import pathlib, time; time.sleep(3); pathlib.Path({str(tmp_path / 'late')!r}).touch()"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with pytest.raises(NotDone, match="took longer than 200 ms"):
        running(program, timeout="200 ms").do(INTENT)
    assert not (tmp_path / "late").exists()


def test_a_program_that_is_not_there_may_be_there_later() -> None:
    with pytest.raises(NotDone, match="nowhere cannot be run: No such file"):
        Command(command(["/nowhere"])).do(INTENT)


@pytest.mark.parametrize("wrong", ["ls -l", [], [""], ["a\0b"], [1]])
def test_what_is_no_list_of_words_is_refused(wrong: Any) -> None:
    with pytest.raises(BadInput):
        command(wrong)
