"""A shop that writes twice diverges from its own topic; the capture of the same transactions does not."""

import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.servers.postgres import PostgresServer
from typed import lines, own_database, type_line

HERE = Path(__file__).parent
SHOP = runpy.run_path(str(HERE / "shop.py"))
KILLED = """
import os, runpy, signal
shop = runpy.run_path({shop!r})
first, second = shop["Instance"]("db_first").writes(shop["Change"](0, 1_000_000))
first()
os.kill(os.getpid(), signal.SIGKILL)
second()
"""


@pytest.fixture(scope="module")
def printed(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, ...], str]]:
    """What each command of the README printed."""
    with own_database(postgres, "dual_writes", tmp_path_factory.mktemp("home")):
        said = {}
        for line in lines(HERE / "README.md"):
            if line.words[:3] == ("penstock", "cdc", "run"):
                kill_one()
            if line.words[:3] != ("penstock", "cdc", "remove"):
                said[line.words[1:3]] = type_line(line.words, HERE)
        yield said
        type_line(("penstock", "cdc", "remove", "shop", "--yes"), HERE)


def kill_one() -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED.format(shop=str(HERE / "shop.py"))], check=False)
    assert killed.returncode == -signal.SIGKILL


def verdict(who: str, table: str) -> Any:
    return SHOP["compare"](table, f"{who}.{table}")


@pytest.mark.usefixtures("printed")
@pytest.mark.parametrize("table", ["db_first", "topic_first", "raced"])
def test_the_topics_of_the_capture_have_every_change_once_in_the_order_of_commits(table: str) -> None:
    assert verdict("shop.public", table) == (0, 0, 0, 0)
    assert folded(table) == rows(table)


@pytest.mark.usefixtures("printed")
def test_a_crash_between_the_two_writes_loses_a_change_or_invents_one() -> None:
    lost, invented = verdict("app", "db_first"), verdict("app", "topic_first")
    assert (lost.missing, lost.invented) == (7, 0)  # one more by the kill
    assert (invented.missing, invented.invented) == (0, 6)


@pytest.mark.usefixtures("printed")
def test_two_instances_swap_their_writes_and_some_items_stay_wrong_for_good() -> None:
    for table in ("db_first", "topic_first"):
        found = verdict("app", table)
        assert found.swapped > 20
        assert found.wrong > 5
    assert verdict("app", "raced")[:2] == (0, 0)  # nobody crashed; whether they overtook each other is a matter of luck


def test_the_readme_shows_what_is_printed(printed: dict[tuple[str, ...], str]) -> None:
    text = (HERE / "README.md").read_text()
    assert printed["shop.py", "work"] in text
    compared = [line for line in printed["shop.py", "compare"].splitlines() if "raced" not in line and "app.db_first" not in line]
    assert all(line in text for line in compared)
    assert printed["cdc", "reconcile"].count('"equal":true') == 3


def folded(table: str) -> dict[int, int]:
    return {change.item: change.price for change in SHOP["told"](f"shop.public.{table}")}


def rows(table: str) -> dict[int, int]:
    with SHOP["database"]() as connection:
        return dict(connection.execute(f"select id, price from {table} where version > 0").fetchall())
