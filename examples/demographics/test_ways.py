"""A file, a lookup and a capture of the same PostgreSQL agree until something changes."""

import runpy
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.servers.postgres import PostgresServer
from typed import lines, own_database, type_line
from waiting import until

HERE = Path(__file__).parent
CRM = runpy.run_path(str(HERE / "crm.py"))
SAME = [("UserID1", "LoggedIn", 28), ("UserID2", "LoggedIn", 35)]
# `penstock run ways.py --catch-up`, its work done in the process itself instead of in Spark's.
CATCH_UP = f"""
import sys, threading
sys.path.insert(0, {str(HERE.parents[1] / "tests")!r})
from faults.engine_shop import SparkFree
from penstock.cli.flow.load import load_flows
from penstock.engine.run import loop
from penstock.storage.home import find_home
runtime, flows = SparkFree(find_home()), load_flows(({str(HERE / "ways.py")!r},))
driver = runtime.driver(runtime.plan(flows[0], flows))
driver.start()
loop.catch_up(driver, threading.Event(), lambda report: None, 2)
driver.stop()
"""


@dataclass
class Typed:
    """What came of the commands of the README."""

    answers: list[dict[str, Any]] = field(default_factory=list)  # behind each run of the flow
    reads: dict[str, list[int]] = field(default_factory=dict)  # how often the table was read, by whom
    compared: str = ""


@pytest.fixture(scope="module")
def typed(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Typed]:
    with pytest.MonkeyPatch.context() as patch, own_database(postgres, "demographics", tmp_path_factory.mktemp("home")):
        patch.chdir(tmp_path_factory.mktemp("here"))
        found = Typed()
        for line in lines(HERE / "README.md", block=1):
            words = line.words
            before = reads()
            if words[:2] == ("penstock", "run"):
                subprocess.run([sys.executable, "-c", CATCH_UP], check=True)
                found.answers.append(CRM["answers"]())
                assert until(lambda before=before: reads() > before)
                found.reads.setdefault("lookup", []).append(reads() - before)
            else:
                found.compared = type_line(words, HERE) if words[-1] != "--yes" else found.compared
            if words[:3] == ("penstock", "cdc", "run"):
                assert until(nobody_else)
                found.reads.setdefault("capture", []).append(reads() - before)
        yield found
        type_line(("penstock", "cdc", "remove", "crm", "--yes"), HERE)


def reads() -> int:
    """How often the table was read, as the database counts once those who read have gone."""
    statement = "select coalesce(sum(seq_scan + coalesce(idx_scan, 0)), 0) from pg_stat_user_tables where relname = 'profiles'"
    ((count,),) = CRM["asked"](statement)
    return int(count)


def nobody_else() -> bool:
    statement = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    return bool(CRM["asked"](statement) == [(0,)])


def test_all_three_say_the_same_while_nothing_changes(typed: Typed) -> None:
    assert typed.answers[0] == {"by_file": SAME, "by_lookup": SAME, "by_changes": SAME}


def test_after_a_change_the_file_is_stale_the_lookup_is_newest_and_the_capture_knows_what_held_then(typed: Typed) -> None:
    ages = {way: {action: age for user, action, age in rows if user == "UserID1"} for way, rows in typed.answers[1].items()}
    assert ages["by_file"] == {"LoggedIn": 28, "LoggedOut": 28, "ViewedProduct": 28}
    assert ages["by_lookup"] == {"LoggedIn": 28, "LoggedOut": 29, "ViewedProduct": 29}
    assert ages["by_changes"] == {"LoggedIn": 28, "LoggedOut": 29, "ViewedProduct": 28}


def test_a_lookup_asks_for_each_batch_and_a_capture_reads_the_table_once(typed: Typed) -> None:
    assert typed.reads == {"lookup": [1, 1], "capture": [1, 0]}


def test_the_readme_shows_what_is_printed(typed: Typed) -> None:
    assert typed.compared in (HERE / "README.md").read_text()
