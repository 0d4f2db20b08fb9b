"""What three ways of copying a table see of its changes; everything but the seconds."""

import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock import open_log
from penstock.errors import NotFound
from penstock.testing.servers.postgres import PostgresServer
from typed import lines, own_database, type_line
from waiting import until

HERE = Path(__file__).parent
BANK = runpy.run_path(str(HERE / "bank.py"))
NIGHTLY = ("penstock", "cdc", "run", "nightly", "--catch-up")


@pytest.fixture(scope="module")
def seen(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What each way has seen, behind the commands of the README."""
    with own_database(postgres, "nightly_copy", tmp_path_factory.mktemp("home")):
        commands = [line.words for line in lines(HERE / "README.md")]
        beside = commands.index(("penstock", "cdc", "run", "bank", "&"))
        for words in commands[:beside]:
            type_line(words, HERE)
        with following():
            BANK["work"](lambda: type_line(NIGHTLY, HERE))
            assert until(lambda: followed() == len(BANK["history"]()))
        yield {way: BANK["compare"](way) for way in BANK["TOPICS"]}
        for words in commands[-2:]:
            type_line(words, HERE)


@contextmanager
def following() -> Iterator[None]:
    """A capture that runs meanwhile, and has copied the accounts."""
    program = "from penstock.cli.entry import main; main()"
    capture = subprocess.Popen([sys.executable, "-c", program, "cdc", "run", "bank", "--quiet"])
    try:
        assert until(lambda: rows_of("bank.public.accounts") == BANK["ACCOUNTS"])
        yield
    finally:
        capture.send_signal(signal.SIGINT)
        assert capture.wait(60) == 0


def rows_of(topic: str) -> int:
    try:
        return open_log().topic(topic).ends()[0].next
    except NotFound:
        return 0


def followed() -> int:
    return len(list(BANK["told"]("bank.public.accounts")))


def test_a_capture_sees_every_change_and_reads_each_row_once(seen: dict[str, Any]) -> None:
    found, happened = seen["followed"], BANK["history"]()
    assert (found.changes, found.closed) == (len(happened), sum(change.balance is None for change in happened))
    assert (found.rows_read, found.unknown, found.wrong) == (BANK["ACCOUNTS"], 0, 0)


def test_a_copy_every_night_is_right_then_and_misses_what_happens_by_day(seen: dict[str, Any]) -> None:
    copied, everything = seen["copied"], seen["followed"]
    assert copied.wrong == 0
    assert copied.rows_read > 4 * BANK["ACCOUNTS"] * 0.9
    assert copied.changes < 0.7 * everything.changes
    assert copied.unknown == everything.closed - copied.closed > 0


def test_a_copy_by_time_keeps_what_was_closed_and_passes_over_what_commits_late(seen: dict[str, Any]) -> None:
    newer = seen["newer"]
    assert newer.closed == 0
    last = {change.account: change.balance for change in BANK["history"]()}
    slow = set(range(BANK["ACCOUNTS"] - BANK["DAYS"] + 1, BANK["ACCOUNTS"] + 1))
    assert slow <= last.keys()
    known = {change.account for change in BANK["told"]("newer")}
    assert not slow & known
    assert newer.wrong > len(slow)


def test_the_readme_shows_what_is_printed(seen: dict[str, Any]) -> None:
    text = (HERE / "README.md").read_text()
    assert seen
    first, head, *ways = BANK["shown"]()
    assert f"{first}\n{head}\n" in text
    for line in ways:
        facts = line.split()[: 8 if "followed" not in line else 6]
        assert any(shown.split()[: len(facts)] == facts for shown in text.splitlines()), line
