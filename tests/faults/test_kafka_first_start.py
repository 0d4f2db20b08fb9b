"""A flow that is killed while it makes its output topic on Kafka, at its first start, goes on at the next."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.log.kafka.log import KafkaLog
from penstock.log.kafka.settings import KafkaSettings
from penstock.log.port import TopicSpec
from penstock.testing.contracts.log.samples import raw
from penstock.testing.servers.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.faults, pytest.mark.long, pytest.mark.timeout(300)]
PASSER = Path(__file__).with_name("kafka_passer.py")
# Runs the flow and kills it where the named function would be called, or has returned.
KILLED = f"""
import os, runpy, signal, sys
from penstock.log.kafka import catalog, log

point, behind = sys.argv.pop(1).split("@")
owner, name = {{
    "announce": (catalog.Catalog, "announce"),
    "make": (log.KafkaLog, "_make"),
    "wait": (log, "wait_for"),
    "put": (catalog.Catalog, "put"),
}}[point]
real, calls = getattr(owner, name), []

def killed(*args, **more):
    calls.append(args)
    if len(calls) == int(behind):
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*args, **more)

setattr(owner, name, killed)
sys.argv[0] = {str(PASSER)!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""
# The flow makes its dead letters' topic, too: each point comes several times.
POINTS = [f"{point}@{n}" for point in ("announce", "make", "wait", "put") for n in (1, 2, 3)]


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_while_topics_are_made_does_not_block_the_flow(
    point: str, kafka_broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{kafka_broker.url}?prefix={tmp_path.name[-30:].replace('@', '')}.&transaction_timeout=2"
    monkeypatch.setenv("PENSTOCK_LOG", url)
    log = KafkaLog(KafkaSettings.of(url))
    log.create(TopicSpec("orders", 4)).append(0, raw([b'{"n": %d}' % n for n in range(10)]))
    more = [str(tmp_path / "home"), "--finish"]
    first = subprocess.run([sys.executable, "-c", KILLED, point, *more], capture_output=True, text=True, check=False, timeout=120)
    assert first.returncode in (-signal.SIGKILL, 0), first.stderr
    assert first.returncode or not point.endswith("@1"), "it was not killed"
    again = subprocess.run([sys.executable, str(PASSER), *more], capture_output=True, text=True, check=False, timeout=120)
    assert again.returncode == 0, again.stdout + again.stderr
    copied = log.topic("copied")
    assert copied.spec.writer == "passed"
    assert sum(chunk.frame.count for partition in range(4) for chunk in copied.read(partition)) == 10
