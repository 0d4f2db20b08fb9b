"""Examples as their README says to run them, killed on the way: their views hold what DuckDB makes of the same files (G8, G9)."""

import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from penstock.cli.main import run
from penstock.views.view import View

pytestmark = pytest.mark.faults

EXAMPLES = Path(__file__).parents[2] / "examples"
ASKED = sorted(path.parent.name for path in EXAMPLES.glob("*/expected.sql"))
SCRIPT = Path(__file__).with_name("example_child.py")
KILLS = ("after_decide@1", "before_decide@1", "view.rows@1")
Row = tuple[tuple[str, str], ...]


@pytest.fixture(scope="module")
def killer() -> "Iterator[subprocess.Popen[str]]":
    process = subprocess.Popen([sys.executable, str(SCRIPT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield process
    process.communicate()


def commands(example: Path) -> list[list[str]]:
    """What the README tells its reader to type."""
    block = re.search(r"```console\n(.*?)```", (example / "README.md").read_text(), re.DOTALL)
    assert block
    return [shlex.split(line.removeprefix("$ penstock ")) for line in block[1].splitlines() if line.startswith("$ penstock ")]


@pytest.mark.parametrize("name", [*ASKED[:2], *(pytest.param(name, marks=pytest.mark.long) for name in ASKED[2:])])
def test_a_killed_example_comes_to_what_duckdb_says(
    name: str, killer: "subprocess.Popen[str]", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = EXAMPLES / name
    monkeypatch.chdir(example)
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    told = commands(example)
    for command in told:
        if command[0] == "topic":
            assert run(command) == 0
    assert ended(killer, tmp_path, example) == [-signal.SIGKILL] * len(KILLS) + [0]
    question = (example / "expected.sql").read_text()
    asked = duckdb.sql(question)
    wanted = rows([dict(zip(asked.columns, row, strict=True)) for row in asked.fetchall()], asked.columns)
    named = [command[2] for command in told if command[:2] == ["view", "show"] and command[2] in question.splitlines()[0]]
    assert named, "the first line says which views hold the answer"
    for view in named:
        assert rows(held(tmp_path, view), asked.columns) == wanted


def held(home: Path, name: str) -> list[dict[str, Any]]:
    with View(home / "views", name) as view:
        found: list[dict[str, Any]] = view.rows().to_pylist()
    return found


def ended(killer: "subprocess.Popen[str]", home: Path, example: Path) -> list[int]:
    assert killer.stdin
    assert killer.stdout
    killer.stdin.write(json.dumps([str(home), str(example), KILLS]) + "\n")
    killer.stdin.flush()
    ends: list[int] = json.loads(killer.stdout.readline())
    return ends


def rows(given: list[dict[str, Any]], columns: list[str]) -> list[Row]:
    return sorted(tuple((name, _told(row[name])) for name in columns) for row in given)


def _told(value: Any) -> str:
    return value.strftime("%Y-%m-%dT%H:%M:%S.%f") if isinstance(value, datetime) else str(value)
