"""Triggers and the server's log tell the same changes, and a transaction that commits late is not missed."""

import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing.servers.postgres import PostgresServer
from typed import lines, own_database, type_line

HERE = Path(__file__).parent
LEDGER = runpy.run_path(str(HERE / "ledger.py"))


@pytest.fixture(scope="module")
def printed(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, ...], str]]:
    """What each command of the README printed."""
    with own_database(postgres, "outbox", tmp_path_factory.mktemp("home")):
        commands = [line.words for line in lines(HERE / "README.md")]
        yield {words[1:]: type_line(words, HERE) for words in commands if "remove" not in words}
        for words in commands:
            if "remove" in words:
                type_line(words, HERE)


def test_both_topics_have_the_same_changes_and_leave_what_the_tables_hold(printed: dict[tuple[str, ...], str]) -> None:
    assert printed["ledger.py", "compare"] in (HERE / "README.md").read_text()
    assert LEDGER["by_row"]("watched") == LEDGER["by_row"]("logged")
    for table in ("watched", "logged"):
        assert LEDGER["folded"](table) == LEDGER["rows"](table) == LEDGER["rows"]("plain")


@pytest.mark.usefixtures("printed")
def test_a_transaction_that_commits_behind_a_later_one_is_not_missed() -> None:
    with LEDGER["database"]() as early, LEDGER["database"]() as late:
        early.execute("begin")
        early.execute("insert into watched values (-1, 'first in the outbox', 0)")
        late.execute("insert into watched values (-2, 'first to commit', 0)")
        type_line(("penstock", "cdc", "run", "outbox", "--catch-up"), HERE)
        assert told_of() == [-2]
        early.execute("commit")
        type_line(("penstock", "cdc", "run", "outbox", "--catch-up"), HERE)
        assert told_of() == [-2, -1]


def told_of() -> list[int]:
    return [row[0] for _, row in LEDGER["changes"]("watched") if row[0] < 0]
