"""Where the home is."""

import os
from pathlib import Path

import pytest

from penstock.errors import StorageError
from penstock.storage.home import Home, find_home


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_HOME", raising=False)
    monkeypatch.chdir(tmp_path)


def test_the_variable_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".penstock").mkdir()
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "elsewhere"))
    assert find_home() == tmp_path / "elsewhere"


def test_the_nearest_directory_upwards_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".penstock").mkdir()
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert find_home() == tmp_path / ".penstock"


def test_without_any_it_is_here_and_is_not_made(tmp_path: Path) -> None:
    assert find_home() == tmp_path / ".penstock"
    assert list(tmp_path.iterdir()) == []


def test_its_rooms() -> None:
    home = Home(Path("/h"))
    assert (home.log, home.flows, home.views) == (Path("/h/log"), Path("/h/flows"), Path("/h/views"))


@pytest.mark.parametrize("kind", ["file", "dangling link"])
def test_a_home_that_is_no_directory_is_one_clear_error_and_nothing_is_made(tmp_path: Path, kind: str) -> None:
    home = tmp_path / ".penstock"
    home.write_text("x") if kind == "file" else home.symlink_to(tmp_path / "gone")
    with pytest.raises(StorageError, match=r"the home .* is not a directory"):
        find_home()
    assert [p.name for p in tmp_path.iterdir()] == [".penstock"]


def test_a_home_of_somebody_else_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / ".penstock"
    home.mkdir(0o700)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(StorageError, match="cannot be read by this user"):
        find_home()
    assert list(home.iterdir()) == []
