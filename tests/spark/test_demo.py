"""The demo as a script runs it: an engine that is killed twice, and books that balance."""

import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

CALL = [sys.executable, "-c", "from penstock.cli.main import main; main()"]


@pytest.mark.timeout(600)
def test_demo_loses_and_doubles_nothing_although_its_engine_is_killed_twice(tmp_path: Path) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [*CALL, "demo", "--headless", "--seconds", "20", "--output", "json"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=580)
    assert done.returncode == 0, done.stderr
    verdict = orjson.loads(done.stdout)
    assert (verdict["verdict"], verdict["lost"], verdict["doubled"], verdict["kills"]) == ("ok", 0, 0, 2)
    assert verdict["produced"] == verdict["counted"] + verdict["late"] + verdict["dead"] > 0
    assert verdict["paid"] > 0
    assert verdict["first_result_seconds"] > 0
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("penstock-demo-*"))
