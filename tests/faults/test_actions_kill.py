"""Real kills of a process that sends webhooks: where keys are honoured, every alert is there once and none is lost (G38)."""

import json
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from faults.engine_shop import MINUTE, START, Input, Order, fill
from penstock.sinks.actions.outbox.sender import POINTS
from penstock.sinks.topic import POINTS as TOPIC_POINTS
from penstock.testing.receiver import LOST, OK, Receiver, Reply

pytestmark = pytest.mark.faults

SCRIPT = Path(__file__).with_name("actions_child.py")
Runs = Callable[[Path, str, list[str]], list[int]]
ROWS = 60
CASES = {
    **{f"{point} {n}": [f"{point}@{n}"] for point in POINTS[:3] for n in (1, 7)},
    **{f"{point} 2": [f"{point}@2"] for point in TOPIC_POINTS},
    "again and again": ["action.begun@3", "action.done@5", "action.noted@2", "after_decide@1", "action.done@1"],
}


@pytest.fixture(scope="module")
def run() -> Iterator[Runs]:
    process = subprocess.Popen([sys.executable, str(SCRIPT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def runs(home: Path, url: str, fails: list[str]) -> list[int]:
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps([str(home), url, fails]) + "\n")
        process.stdin.flush()
        ends: list[int] = json.loads(process.stdout.readline())
        return ends

    yield runs
    process.communicate()


def orders() -> list[Order]:
    rng = random.Random(11)
    return [Order(f"o{n}", f"u{n % 3}", rng.randrange(100), START + timedelta(seconds=4 * n)) for n in range(ROWS)]


def expected(given: list[Order]) -> list[tuple[Any, ...]]:
    totals: dict[tuple[str, Any], int] = {}
    for order in given:
        start = START + (order.at - START) // MINUTE * MINUTE
        totals[order.user, start] = totals.get((order.user, start), 0) + order.amount
    large = [(order.order_id, order.amount) for order in given if order.amount >= 50]
    return sorted([*large, *((f"{user} {start:%H:%M}", total) for (user, start), total in totals.items())])


def came(at: Receiver) -> list[tuple[Any, ...]]:
    return sorted(_shown(message.json()) for message in at.messages.values())


def _shown(body: dict[str, Any]) -> tuple[Any, ...]:
    if "order_id" in body:
        return body["order_id"], body["amount"]
    return f"{body['user']} {body['window_start'][11:16]}", body["total"]


@pytest.mark.parametrize("fails", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("honest", [True, False], ids=["answering", "failing"])
def test_every_alert_is_there_once_by_its_key_whenever_the_process_is_killed(
    run: Runs, tmp_path: Path, fails: list[str], honest: bool
) -> None:
    given = orders()
    fill(tmp_path, Input([given, []], []))
    with Receiver() as at:
        at.answer(*([] if honest else [LOST, Reply(500), OK, Reply(503), LOST, Reply(429, (("Retry-After", "0"),))] * 2))
        killed = run(tmp_path, at.url, fails)
        assert all(end in (0, -signal.SIGKILL) for end in killed)
        assert -signal.SIGKILL in killed
        for _ in range(20):  # a run that ends leaves those that wait for another try to the next one
            assert run(tmp_path, at.url, [""]) == [0]
            if len(at.messages) == len(expected(given)):
                break
        assert came(at) == expected(given)
        known = {body: key for key, body in ((request.key, request.body) for request in at.requests)}
        assert len(known) == len(at.messages), "a row was sent under two keys"
