"""A home that this user may look at but not write: what only reads works, what writes says so in one paragraph."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.log.groups.port import Source
from penstock.log.open import open_log
from unit.cli.looking import fill, flow_file, run_flow

# Runs commands one after the other and prints what each said.
PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
from unit.cli.calling import calls_of
for words in json.loads(sys.stdin.read()):
    print(json.dumps(calls_of(*words)()))
"""
READS = [
    "topic list", "topic describe views", "topic consume views", "view list", "view show per_page", "view show per_page --open",
    "fates pages", "epochs pages", "state show pages", "group list", "group describe readers", "why views 0 1 {flow}",
    "plan {flow}", "check {flow}", "fates {flow} --lateness 1s",
]  # fmt: skip
WRITES = ["topic create t", "topic mark views end", "queue create q", "run {flow} --catch-up"]


def _as_others() -> None:
    """Root may write everywhere: it gives that up, as far as the program it becomes is concerned."""
    drop_from_bounding_set, may_write_anywhere, may_read_anywhere = 24, 1, 2
    for capability in (may_write_anywhere, may_read_anywhere):
        ctypes.CDLL(None).prctl(drop_from_bounding_set, capability, 0, 0, 0)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("read-only") / "home"
    home.mkdir()
    flow_file(home.parent)
    fill(home)
    run_flow(home, str(home.parent / "pages.py"))
    log = open_log(home)
    log.groups().put("readers", Source("views", log.topic("views").id, 1), {0: 1})
    subprocess.run(["chmod", "-R", "a-w", str(home)], check=True)
    yield home
    subprocess.run(["chmod", "-R", "u+w", str(home)], check=True)
    shutil.rmtree(home)


def answers(home: Path, commands: list[str]) -> list[tuple[int, str, str]]:
    words = [command.format(flow=home.parent / "pages.py").split() for command in commands]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(Path(__file__).parents[2])],
        input=json.dumps(words),
        env=os.environ | {"PENSTOCK_HOME": str(home)},
        cwd=home.parent,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=_as_others,
    )
    assert done.returncode == 0, done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets root give up its rights one by one")
def test_what_only_reads_works_in_a_home_that_cannot_be_written(home: Path) -> None:
    for command, (code, out, err) in zip(READS, answers(home, READS), strict=True):
        assert code == 0, f"{command}: {err}"
        assert out, command


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets root give up its rights one by one")
def test_what_writes_says_that_it_may_not_and_where(home: Path) -> None:
    for command, (code, _, err) in zip(WRITES, answers(home, WRITES), strict=True):
        assert code == 1, command
        assert "Permission denied" in err
        assert str(home) in err
        assert "hint: this user may not write there" in err
