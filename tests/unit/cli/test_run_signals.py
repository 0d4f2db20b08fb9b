"""`penstock run` before its first epoch: a signal ends it, wherever it hangs, without a trace."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from waiting import until

FLOW = """
import os
from penstock import Flow

flow = Flow("hanging")
flow.stream("never", "n long").view("shown", key="n")
os.mkfifo("reached")
{hang}
"""
HANGING = 'open("reached")'  # until somebody writes: as a start may hang in the file system


def started(home: Path, hang: str, *more: str) -> "subprocess.Popen[str]":
    (home / "hanging.py").write_text(FLOW.format(hang=hang))
    command = [sys.executable, "-c", "from penstock.cli.main import main; main()", "run", "hanging.py", *more]
    env = os.environ | {"PENSTOCK_HOME": str(home / ".penstock")}
    return subprocess.Popen(command, cwd=home, env=env, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_run_that_hangs_before_its_first_epoch(number: signal.Signals, code: int, tmp_path: Path) -> None:
    with started(tmp_path, HANGING) as process:
        assert until(lambda: (tmp_path / "reached").exists() or process.poll() is not None)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in said) == (code, False), said


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_run_whose_log_does_not_answer(number: signal.Signals, code: int, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"kafka://127.0.0.1:{silent.getsockname()[1]}"
        with started(tmp_path, "", "--log", url) as process:
            assert process.stderr
            assert process.stderr.readline().startswith("home ")
            process.send_signal(number)
            _, said = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in said, "error" in said) == (code, False, False), said
