"""A run that is asked to stop before its first epoch ends at once; one in an epoch finishes it."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock import Producer, Schema, TopicSpec, open_log
from penstock.engine.run.signals import TERMINATED, ended_by_signals, stopped_by_signals
from waiting import until

FLOW = """
from penstock import Flow

flow = Flow("shop")
flow.stream("orders", "user_id long", lateness="1 second").view("all")
"""


@pytest.mark.parametrize("ask", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_waits_for_java_ends_when_it_is_asked_to(ask: signal.Signals, tmp_path: Path) -> None:
    java = tmp_path / "java"
    (java / "bin").mkdir(parents=True)
    (java / "release").write_text('JAVA_VERSION="17.0.1"\n')
    (java / "bin" / "java").write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\nexec sleep 600\n")
    (java / "bin" / "java").chmod(0o755)
    (tmp_path / "shop.py").write_text(FLOW)
    with Producer(open_log(tmp_path / "home").create(TopicSpec("orders", schema=Schema.of("user_id long")))) as producer:
        producer.send({"user_id": 1})
    call = [sys.executable, "-c", "from penstock.cli.main import main; main()", "run", str(tmp_path / "shop.py")]
    env = {**os.environ, "PENSTOCK_HOME": str(tmp_path / "home"), "JAVA_HOME": str(java)}
    process = subprocess.Popen(call, env=env, stderr=subprocess.PIPE, text=True)
    try:
        assert until(lambda: (tmp_path / "asked").exists() or process.poll() is not None)
        process.send_signal(ask)
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == (TERMINATED if ask is signal.SIGTERM else 130), said
    assert "Traceback" not in said


def test_a_signal_before_anything_has_begun_ends_at_once_and_later_asks_to_stop() -> None:
    stop, said = threading.Event(), list[str]()
    with ended_by_signals():
        for ask, ends in ((signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)):
            with pytest.raises(ends):
                signal.raise_signal(ask)
    with stopped_by_signals(stop, said.append, "finishing"):
        signal.raise_signal(signal.SIGTERM)
        assert (stop.is_set(), said) == (True, ["finishing"])
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
