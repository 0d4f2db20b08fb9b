"""What happens when messages come faster than they are taken is what the queue's settings say, and memory stays bounded."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from faults.queue_flood import BATCH, BODY, LIMIT, MESSAGES

pytestmark = pytest.mark.faults
SCRIPT = Path(__file__).with_name("queue_flood.py")
ROOM = 2 * LIMIT + (48 << 20)  # the queue, what is on its way, and what Python does not give back at once


def flood(where: str, policy: str, place: Path) -> dict[str, int]:
    done = subprocess.run([sys.executable, SCRIPT, where, policy, place], capture_output=True, text=True, timeout=120, check=True)
    told: dict[str, int] = json.loads(done.stdout)
    assert told["grown"] < ROOM < MESSAGES * BODY, told
    return told


@pytest.mark.parametrize("where", ["memory", "log"])
def test_pushed_back_senders_wait_and_nothing_is_lost(where: str, tmp_path: Path) -> None:
    told = flood(where, "push-back", tmp_path)
    assert told["most"] <= LIMIT
    assert told["full"] > 0
    assert told["refused"] == told["full"] * BATCH
    assert (told["sent"], told["consumed"], told["dropped"]) == (MESSAGES, MESSAGES, 0)


@pytest.mark.parametrize("where", ["memory", "log"])
def test_the_newest_are_dropped_and_counted(where: str, tmp_path: Path) -> None:
    told = flood(where, "drop-newest", tmp_path)
    assert told["most"] <= LIMIT
    assert told["away"] == told["dropped"] > 0
    assert told["sent"] == told["consumed"] == MESSAGES - told["dropped"]


@pytest.mark.parametrize("where", ["memory", "log"])
def test_the_oldest_are_dropped_and_counted(where: str, tmp_path: Path) -> None:
    told = flood(where, "drop-oldest", tmp_path)
    assert told["most"] <= LIMIT
    assert told["dropped"] > 0
    assert told["sent"] == MESSAGES
    assert told["consumed"] == MESSAGES - told["dropped"]


def test_the_log_is_a_buffer_that_is_not_in_memory(tmp_path: Path) -> None:
    told = flood("log", "buffer", tmp_path)
    assert (told["sent"], told["consumed"], told["dropped"]) == (MESSAGES, MESSAGES, 0)
