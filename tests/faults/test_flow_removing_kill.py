"""G31: `penstock flow reset` and `drop`, killed at every step, are finished by the next one, and nothing else is touched."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import Mismatch
from unit.engine.homes import Home
from unit.engine.test_flow_removing import ROWS, content, results, shop

PENSTOCK = (sys.executable, "-c", "from penstock.cli.main import main; main()")


def command(home: Home, what: str, fail: str = "") -> subprocess.CompletedProcess[str]:
    words = [*PENSTOCK, "flow", what, "shop", "--yes", *(["--topics"] if what == "drop" else [])]
    environment = os.environ | {"PENSTOCK_HOME": str(home.path), "PENSTOCK_FAIL": fail}
    return subprocess.run(words, env=environment, capture_output=True, text=True, start_new_session=True, timeout=120, check=False)


@pytest.mark.long
@pytest.mark.parametrize("what", ["reset", "drop"])
def test_killed_at_every_step_it_is_finished_by_the_next(what: str, tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.send("orders", *ROWS)
    home.run(shop("other", "2"))
    home.run(shop())
    before, others, kills = results(home), content(home), 0
    for point in ("noted", "group", "topic", "topic@2", "view", "view@2", "state", "state@3", "state@5", "emptied"):
        done = command(home, what, f"removing.{point}")
        assert done.returncode == -signal.SIGKILL, (point, done.stderr)
        kills += 1
        with pytest.raises(Mismatch, match="was begun and not finished"):
            home.run(shop())
        assert content(home) == others
        done = command(home, what)
        assert done.returncode == 0, done.stderr
        assert content(home) == others
        home.run(shop())
        assert results(home) == before
    assert kills == 10
