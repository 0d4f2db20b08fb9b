"""Temporary directories: one per process, and none of a dead process left."""

import os
import subprocess
import sys
from pathlib import Path

MAKES = "from penstock.engine.spark.scratch import scratch; print(scratch(), flush=True)"
LATER = "import penstock.engine.spark.scratch as s; s.YOUNG = -1.0; "


def made_by(tmp_path: Path, script: str) -> Path:
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


def test_the_directory_of_a_dead_process_is_swept_by_the_next(tmp_path: Path) -> None:
    left = made_by(tmp_path, MAKES)
    assert left.is_dir()
    assert left.stat().st_mode & 0o077 == 0
    later = made_by(tmp_path, LATER + MAKES)
    assert later.is_dir()
    assert not left.exists()


def test_the_directory_of_a_living_process_stays(tmp_path: Path) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    living = subprocess.Popen([sys.executable, "-c", MAKES + "; input()"], env=env, stdin=-1, stdout=-1, text=True)
    assert living.stdout
    held = Path(living.stdout.readline().strip())
    made_by(tmp_path, LATER + MAKES)
    assert held.is_dir()
    living.communicate("\n")


def test_a_young_directory_stays_even_if_nobody_has_locked_it_yet(tmp_path: Path) -> None:
    left = made_by(tmp_path, MAKES)
    made_by(tmp_path, MAKES)
    assert left.is_dir()


def test_other_peoples_directories_are_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "penstock-notes"
    other.mkdir()
    made_by(tmp_path, LATER + MAKES)
    assert other.is_dir()
