"""The consumer is killed between its write and its commit, and the stock is right; without the writer it would not be."""

import json
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from penstock.cli.main import run

HERE = Path(__file__).parent
STOCK = {"lamp": 100, "chair": 40, "desk": 12}
ORDERS = [json.loads(line) for line in (HERE / "orders.jsonl").read_text().splitlines()]
KILLED_AFTER = """
import os, runpy, signal
main = runpy.run_path({consumer!r})["main"]
main(sold=lambda offset: os.kill(os.getpid(), signal.SIGKILL) if offset == {offset} else None, lease="0.3 seconds")
"""
CARELESS = """
import contextlib, penstock
class Careless(penstock.IdempotentWriter):
    @contextlib.contextmanager
    def record(self, record):
        yield True
        self._connection.commit()
penstock.IdempotentWriter = Careless
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for words in told("penstock topic"):
        assert run([str(HERE / word) if word.endswith(".jsonl") else word for word in words[1:]]) == 0
    return tmp_path


def told(start: str) -> list[list[str]]:
    """The commands of the README that begin like this."""
    lines = re.findall(rf"^\$ ({start}.*)$", (HERE / "README.md").read_text(), re.MULTILINE)
    return [shlex.split(line) for line in lines]


def consume(offset: int | None, before: str = "") -> int:
    program = before + KILLED_AFTER.format(consumer=str(HERE / "consumer.py"), offset=offset)
    return subprocess.run([sys.executable, "-c", program], check=False, stdout=subprocess.DEVNULL).returncode


def pieces(place: Path) -> dict[str, int]:
    stock = sqlite3.connect(place / "stock.db")
    found = dict(stock.execute("SELECT item, pieces FROM stock"))
    stock.close()
    return found


def expected() -> dict[str, int]:
    sold = Counter[str]()
    for order in ORDERS:
        sold[order["item"]] += order["pieces"]
    return {item: count - sold[item] for item, count in STOCK.items()}


def test_an_order_is_taken_out_once_although_the_consumer_dies_before_it_commits(place: Path) -> None:
    for offset in (0, 4, 4, 9):
        assert consume(offset) == -signal.SIGKILL
    assert consume(None) == 0
    assert pieces(place) == expected()
    assert run(["group", "reset", "inventory", "orders", "--to", "earliest", "--yes"]) == 0
    assert consume(None) == 0
    assert pieces(place) == expected()


def test_without_the_writer_the_stock_would_be_wrong(place: Path) -> None:
    assert consume(4, CARELESS) == -signal.SIGKILL
    assert consume(None, CARELESS) == 0
    assert pieces(place) != expected()


def test_the_readme_shows_what_is_printed(place: Path) -> None:
    done = subprocess.run([sys.executable, str(HERE / "consumer.py")], check=True, capture_output=True, text=True)
    assert f"$ python consumer.py\n{done.stdout}" in (HERE / "README.md").read_text()
