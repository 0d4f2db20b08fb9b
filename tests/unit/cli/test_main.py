"""The command line's frame: lazy commands, readable errors, exit codes."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import click
import pytest

from penstock.cli.main import COMMANDS, Place, run
from penstock.errors import BadFlow, NotFound, PenstockError

HEAVY = {"pyspark", "pyarrow", "polars", "pandas", "numpy", "rich", "sqlglot", "duckdb"}


@click.command()
@click.option("--kind", default="penstock")
def fails(kind: str) -> None:
    if kind == "interrupt":
        raise KeyboardInterrupt
    if kind == "bug":
        raise ValueError("what nobody thought of")
    if kind == "escape":
        raise NotFound("no topic '\x1b[31mred'", "second\x07line")
    raise BadFlow("cannot join orders with payments: no time bound", "flow shop, step settled", hint='say within="30 minutes"')


@click.command()
def answers_four() -> int:
    return 4


@click.command()
@click.pass_obj
def shows_home(settings: object) -> None:
    click.echo(os.environ["PENSTOCK_HOME"])


@pytest.fixture(autouse=True)
def commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SPARK_LOG", "")  # --verbose sets it
    for command in (fails, answers_four, shows_home):
        assert command.name
        monkeypatch.setitem(COMMANDS, command.name, Place(f"{__name__}:{command.callback.__name__}", "test"))


def penstock(*arguments: str) -> "subprocess.CompletedProcess[str]":
    call = "import sys; from penstock.cli.main import main; main()"
    return subprocess.run([sys.executable, "-c", call, *arguments], capture_output=True, text=True, check=False)


def test_a_command_that_is_nearly_one_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "list"]) == 2
    assert "there is no command 'topics'; did you mean topic?" in capsys.readouterr().err


def test_error_is_one_paragraph_with_detail_and_hint_and_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fails"]) == BadFlow.exit_code == 2
    assert capsys.readouterr().err == (
        'error: cannot join orders with payments: no time bound\n  flow shop, step settled\n  hint: say within="30 minutes"\n'
    )


def test_verbose_adds_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--verbose", "fails"]) == 2
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert "error: cannot join" in shown


def test_exit_code_is_the_errors_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(["fails", "--kind", "escape"]) == NotFound.exit_code == 3
    assert PenstockError.exit_code == 1


def test_unforeseen_error_is_short_too_and_points_to_verbose(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fails", "--kind", "bug"]) == 1
    shown = capsys.readouterr().err
    assert "what nobody thought of" in shown
    assert "--verbose" in shown
    assert "Traceback" not in shown


def test_control_characters_in_a_message_are_shown_and_not_sent(capsys: pytest.CaptureFixture[str]) -> None:
    run(["fails", "--kind", "escape"])
    shown = capsys.readouterr().err
    assert r"\x1b[31mred" in shown
    assert r"second\x07line" in shown
    assert "\x1b" not in shown


def test_interrupt_ends_with_130() -> None:
    assert run(["fails", "--kind", "interrupt"]) == 130


def test_number_that_a_command_returns_is_the_exit_code() -> None:
    assert run(["answers-four"]) == 4


def test_wrong_usage_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fails", "--no-such-option"]) == 2
    assert run(["no-such-command"]) == 2
    assert "No such command" in capsys.readouterr().err


def test_home_reaches_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", "elsewhere")
    assert run(["--home", str(tmp_path), "shows-home"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path)


def test_help_lists_every_command_and_imports_nothing_heavy() -> None:
    call = (
        "import sys\nfrom penstock.cli.main import run\ncode = run(['--help'])\n"
        f"print('HEAVY', sorted({HEAVY!r} & set(sys.modules)), code)"
    )
    done = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, check=True)
    assert "HEAVY [] 0" in done.stdout
    for name in ("demo", "run", "check", "plan", "topic", "view", "fates", "why", "epochs", "ingest", "doctor"):
        assert f"\n  {name} " in done.stdout


def test_version_is_the_packages() -> None:
    assert penstock("--version").stdout == f"penstock {version('penstock')}\n"


def test_reader_that_leaves_is_no_error() -> None:
    call = f"{sys.executable} -c 'from penstock.cli.main import main; main()' --help; echo code $? >&2"
    done = subprocess.run(["bash", "-c", f"({call}) | true"], capture_output=True, text=True, check=True)
    assert done.stderr == "code 0\n"
