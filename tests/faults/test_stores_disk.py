"""A disk that runs full under a store: the sink waits, nothing is there in part, and with room again everything is there. (G37)"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.store_disk_child import KINDS

pytestmark = pytest.mark.faults

CHILD = Path(__file__).with_name("store_disk_child.py")
QUICK = ("sqlite", "redis")
ROOT = os.geteuid() == 0


@pytest.fixture
def disk() -> Iterator[Path]:
    """Where a small disk is mounted, which everybody may enter: some servers do not run as root."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


@pytest.mark.parametrize("kind", [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.long) for kind in KINDS])
def test_a_disk_that_runs_full_is_waited_for_and_leaves_no_part_of_an_epoch(kind: str, disk: Path) -> None:
    apart = ["unshare", "-m" if ROOT else "-rm"]
    if not shutil.which("unshare") or subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    if kind == "postgres" and not ROOT:
        pytest.skip("whoever is no root is one behind unshare, and can become nobody else")
    size = "400m" if kind == "postgres" else "16m"
    mount = f"mount -t tmpfs -o size={size},mode=755 none {disk} && exec {sys.executable} {CHILD} {kind} {disk}"
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent), "TMPDIR": str(disk)}
    done = subprocess.run([*apart, "sh", "-c", mount], env=env, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.rstrip().endswith("whole")
