"""G28. Whatever another user of the machine puts into the shared temporary directory: nobody's files change, and nothing hangs."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.engine.spark.scratch import locked, sweep

MAKES = "import penstock.engine.spark.scratch as s; s.YOUNG = -1.0; print(s.scratch(), flush=True)"
STRANGER = 65534  # nobody
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory like /tmp: everybody writes, and removes only what is theirs."""
    path = tmp_path / "t"
    path.mkdir()
    path.chmod(0o1777)
    return path


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    path = tmp_path / "precious"
    path.write_text("years of work")
    return path


def started(shared: Path, patience: float = 20) -> Path:
    """A process of ours takes its directory and sweeps; it must come to an end."""
    env = {**os.environ, "TMPDIR": str(shared)}
    done = subprocess.run([sys.executable, "-c", MAKES], env=env, capture_output=True, text=True, check=True, timeout=patience)
    return Path(done.stdout.strip())


def planted(shared: Path, make: Callable[[Path], object]) -> Path:
    trap = shared / "penstock-trap"
    trap.mkdir(mode=0o700)
    make(trap / "alive")
    return trap


def aged(path: Path) -> None:
    long_ago = time.time() - 3600
    os.utime(path, (long_ago, long_ago), follow_symlinks=False)


def test_a_link_in_place_of_the_lock_changes_nothing_behind_it(shared: Path, precious: Path) -> None:
    trap = planted(shared, lambda alive: alive.symlink_to(precious))
    aged(precious)
    started(shared)
    assert precious.read_text() == "years of work"
    assert (trap / "alive").is_symlink()


def test_a_hard_link_in_place_of_the_lock_changes_nothing_behind_it(shared: Path, precious: Path) -> None:
    planted(shared, lambda alive: alive.hardlink_to(precious))
    aged(precious)
    started(shared)
    assert precious.read_text() == "years of work"


@pytest.mark.parametrize("kind", ["fifo", "directory", "socket"])
def test_what_is_no_file_in_place_of_the_lock_holds_nobody_up(shared: Path, kind: str) -> None:
    def make(alive: Path) -> None:
        if kind == "fifo":
            os.mkfifo(alive)
        elif kind == "directory":
            alive.mkdir()
        else:
            import socket

            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(str(alive))

    trap = planted(shared, make)
    aged(trap / "alive")
    started(shared)
    assert (trap / "alive").exists()


def test_a_link_in_place_of_a_directory_is_not_followed(shared: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o700)
    (mine / "alive").touch(0o600)
    aged(mine / "alive")
    (mine / "notes").write_text("years of work")
    (shared / "penstock-trap").symlink_to(mine)
    started(shared)
    assert (mine / "notes").read_text() == "years of work"
    assert (mine / "alive").exists()


def test_links_inside_a_directory_that_is_swept_are_removed_and_not_followed(shared: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes").write_text("years of work")
    left = planted(shared, lambda alive: alive.touch(0o600))
    aged(left / "alive")
    (left / "blocks").mkdir()
    (left / "blocks" / "out").symlink_to(mine)
    (left / "out").symlink_to(mine)
    started(shared)
    assert not left.exists()
    assert (mine / "notes").read_text() == "years of work"


@as_root
@pytest.mark.parametrize("whose", ["directory", "lock"])
def test_what_belongs_to_somebody_else_is_left_alone(shared: Path, whose: str) -> None:
    left = planted(shared, lambda alive: alive.touch(0o600))
    aged(left / "alive")
    os.chown(left if whose == "directory" else left / "alive", STRANGER, STRANGER)
    started(shared)
    assert (left / "alive").exists()


def test_a_directory_that_others_may_write_to_is_left_alone(shared: Path) -> None:
    left = planted(shared, lambda alive: alive.touch(0o600))
    aged(left / "alive")
    left.chmod(0o777)
    started(shared)
    assert left.exists()


def test_a_directory_that_is_swapped_for_another_while_it_is_swept_costs_that_other_nothing(shared: Path, tmp_path: Path) -> None:
    left = planted(shared, lambda alive: alive.touch(0o600))
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o700)
    (mine / "notes").write_text("years of work")

    def swapped(directory: int) -> bool:
        found = locked(directory, young=-1.0)
        left.rename(shared / "away")
        mine.rename(left)
        return found

    sweep(shared, swapped)
    assert (left / "notes").read_text() == "years of work"


def test_where_anybody_may_rename_what_is_ours_the_cache_of_the_user_is_taken(shared: Path, tmp_path: Path) -> None:
    shared.chmod(0o777)  # no sticky bit
    cache = tmp_path / "cache"
    env = {**os.environ, "TMPDIR": str(shared), "XDG_CACHE_HOME": str(cache)}
    done = subprocess.run([sys.executable, "-c", MAKES], env=env, capture_output=True, text=True, check=True, timeout=20)
    assert cache in Path(done.stdout.strip()).parents


def test_modules_that_lie_in_the_temporary_directory_are_not_imported_when_the_archive_is_built(tmp_path: Path) -> None:
    """`python -m` looks into the working directory first, and that must not be one where everybody writes."""
    shared, home = tmp_path / "t", tmp_path / "home"
    shared.mkdir()
    (shared / "penstock").mkdir()
    (shared / "penstock" / "__init__.py").write_text(f"open({str(tmp_path / 'owned')!r}, 'w')\n")
    script = (
        "import subprocess\n"
        "from penstock.engine.spark import archive\n"
        "made = subprocess.Popen\n"
        "class Seen(made):\n"
        "    def __init__(self, call, **more):\n"
        "        super().__init__([*call[:-1], 'penstock.errors'] if 'penstock.engine.spark.archive' in call else call, **more)\n"
        "        self.wait()\n"
        "subprocess.Popen = Seen\n"
        "archive.build_in_background()\n"
    )
    env = {**os.environ, "TMPDIR": str(shared), "HOME": str(home)}
    subprocess.run([sys.executable, "-c", script], env=env, check=True, timeout=60, cwd=tmp_path)
    assert not (tmp_path / "owned").exists()
    shutil.rmtree(shared)


@as_root
def test_a_cache_directory_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.engine.spark.archive import cache_directory

    (tmp_path / "penstock").mkdir(mode=0o777)
    os.chown(tmp_path / "penstock", STRANGER, STRANGER)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(PermissionError, match="belongs to"):
        cache_directory()
    assert (tmp_path / "penstock").stat().st_mode & 0o777 == 0o777 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
