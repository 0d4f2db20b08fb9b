"""A live run that is asked to stop finishes its epoch, says what it did, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import Producer, Schema, TopicSpec, open_log
from penstock.views.view import View
from waiting import until

FLOW = """
from penstock import Flow

flow = Flow("shop")
orders = flow.stream("orders", "user_id long, amount double, at timestamp", time="at")
orders.where("amount > 10").view("big")
"""
ROWS = [{"user_id": i, "amount": 20.0, "at": "2024-01-15T10:00:15Z"} for i in range(50)]


@pytest.mark.parametrize("ask", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGTERM])
def test_a_live_run_that_is_asked_to_stop_ends_well(ask: signal.Signals, tmp_path: Path) -> None:
    file, home = tmp_path / "shop.py", tmp_path / "home"
    file.write_text(FLOW)
    spec = TopicSpec("orders", schema=Schema.of("user_id long, amount double, at timestamp"), time="at")
    with Producer(open_log(home).create(spec)) as producer:
        for row in ROWS:
            producer.send(row)
    call = [sys.executable, "-c", "from penstock.cli.main import main; main()", "run", str(file)]
    env = {**os.environ, "PENSTOCK_HOME": str(home)}
    process = subprocess.Popen(call, env=env, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert until(lambda: process.poll() is not None or seen(home) == len(ROWS))
        process.send_signal(ask)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, said
    assert "finishing the epoch, then stopping\n" in said
    assert said.endswith("watermark none yet, held back by orders/0\n"), said
    assert "shop: read 50 rows" in said
    assert "Traceback" not in said


def seen(home: Path) -> int:
    """How many rows the view has; none as long as there is no view."""
    if not (home / "views" / "big.db").exists():
        return 0
    with View(home / "views", "big") as view:
        return view.count()
