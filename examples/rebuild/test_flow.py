"""What the README says is typed: stores are broken, compared and filled anew."""

import shutil
from pathlib import Path

import pytest

from faults.engine_shop import SparkFree
from penstock.engine.run import service
from typed import type_all, type_shown

HERE = Path(__file__).parent


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of this directory, where the flow runs in this process and not in Spark's."""
    copy = tmp_path / "rebuild"
    shutil.copytree(HERE, copy, ignore=shutil.ignore_patterns("__pycache__", ".penstock", "lake", "shop.db*"))
    monkeypatch.chdir(copy)
    monkeypatch.setenv("PENSTOCK_HOME", str(copy / ".penstock"))
    monkeypatch.setattr(service, "Runtime", SparkFree)
    return copy


def test_the_readme_says_what_happens(copied: Path) -> None:
    type_all(copied / "README.md")


def test_rows_that_change_again_are_right_again_and_others_stay_wrong_until_they_are_looked_for(copied: Path) -> None:
    more = ("penstock topic produce orders orders.jsonl", "penstock run flow.py --catch-up")
    for line in ("penstock topic create orders --key user --time at", *more, "python stores.py rows", *more):
        type_shown(line, copied)
    said = type_shown('penstock sink reconcile flow.py sqlite.spent || echo "exit code $?"', copied)
    assert "1 of 256 ranges differ" in said
    assert "sqlite.spent mallory is extra" in said
    assert said.endswith("exit code 4\n")
