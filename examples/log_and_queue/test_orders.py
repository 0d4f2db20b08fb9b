"""The same topic, by a group and by a queue: each gets every order, and neither disturbs the other."""

import json
import re
import runpy
import shlex
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from penstock import GroupConsumer, Producer, Queue, open_log
from penstock.cli.main import run
from penstock.queue.message import Received

HERE = Path(__file__).parent
EXAMPLE = runpy.run_path(str(HERE / "orders.py"))
KILLED = """
import os, signal
from penstock import Queue
def handle(message):
    if message.json()["order_id"] == "o3":
        os.kill(os.getpid(), signal.SIGKILL)
Queue.open("packing").work(handle, workers=1, lease="0.3 seconds")
"""


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    lines = re.findall(r"^\$ (penstock (?:topic|queue create).*)$", (HERE / "README.md").read_text(), re.MULTILINE)
    for words in map(shlex.split, lines):
        assert run([str(HERE / word) if word.endswith(".jsonl") else word for word in words[1:]]) == 0


def test_each_reader_gets_every_order_and_a_poison_one_stops_neither() -> None:
    packed, failed = EXAMPLE["pack"]("o4")
    assert Counter(packed) == Counter(["o1", "o2", "o3", "o5", "o6"])
    assert failed == ["o4"]
    assert EXAMPLE["turnover"]() == {"DE": 105, "FR": 45, "IT": 15}
    assert EXAMPLE["turnover"]() == {}
    [letter] = Queue.open("packing").dead_letters.peek()
    assert letter.dead
    assert letter.dead.origin == "orders/0/3"
    assert letter.dead.reason.startswith("ValueError: the box is too small")


def test_both_read_while_orders_are_written() -> None:
    packed, added = list[str](), list[str]()
    worker = Queue.open("packing").worker(lambda message: packed.append(message.json()["order_id"]), workers=2)

    def add_up() -> None:
        with GroupConsumer(None, "turnover", "orders") as consumer:
            for record in consumer.records():
                added.append(record.value["order_id"])
                if len(added) == 306:
                    consumer.stop()

    threads = [threading.Thread(target=add_up), threading.Thread(target=worker.run)]
    for thread in threads:
        thread.start()
    with Producer(open_log().topic("orders"), batch_rows=10) as producer:
        for n in range(7, 307):
            producer.send({"order_id": f"o{n}", "country": "DE", "amount": 1, "at": "2024-01-15T11:00:00Z"})
    threads[0].join(60)
    Queue.open("packing").work(lambda message: packed.append(message.json()["order_id"]), until_empty=True)
    worker.stop()
    threads[1].join(60)
    orders = [f"o{n}" for n in range(1, 307)]
    assert added == orders
    assert Counter(packed) == Counter(orders)


def test_a_packer_that_is_killed_leaves_the_group_alone_and_loses_no_order() -> None:
    assert subprocess.run([sys.executable, "-c", KILLED], check=False).returncode == -signal.SIGKILL
    assert EXAMPLE["turnover"]() == {"DE": 105, "FR": 45, "IT": 15}
    attempts: dict[str, int] = {}

    def handle(message: Received) -> None:
        attempts[json.loads(message.body)["order_id"]] = message.attempt

    Queue.open("packing").work(handle, until_empty=True)
    assert {"o3", "o4", "o5", "o6"} <= attempts.keys()
    assert attempts["o3"] == 2
    assert Queue.open("packing").state().counts["acked"] == 6


def test_retention_sees_the_queue_as_a_reader() -> None:
    EXAMPLE["pack"]()
    EXAMPLE["turnover"]()
    assert {held.reader for held in open_log().groups().positions("orders")} == {"turnover", "queue.packing"}


def test_the_readme_shows_what_is_printed() -> None:
    done = subprocess.run([sys.executable, str(HERE / "orders.py")], check=True, capture_output=True, text=True)
    assert f"$ python orders.py\n{done.stdout}" in (HERE / "README.md").read_text()
