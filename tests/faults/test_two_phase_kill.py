"""Real kills: of drivers that write to two databases, and of the servers under them. (G37)"""

import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from faults import two_phase_killed
from faults.two_phase_killed import EPOCHS, held
from penstock.testing.servers.postgres import PostgresServer
from two_phase_pair import Pair, pair_of

pytestmark = pytest.mark.faults

SEED = int(os.environ.get("PENSTOCK_SEED", "1"))


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[PostgresServer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(PostgresServer(tmp_path_factory.mktemp(name))) for name in ("one", "other")]


@pytest.fixture
def pair(servers: list[PostgresServer]) -> Iterator[Pair]:
    with pair_of(servers) as made:
        yield made


def started(what: str, pair: Pair, number: int) -> "subprocess.Popen[str]":
    words = [sys.executable, two_phase_killed.__file__, what, *pair.urls, pair.table, str(SEED), str(number)]
    path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, env={**os.environ, "PYTHONPATH": path})


def ended(process: "subprocess.Popen[str]") -> str:
    out, err = process.communicate(timeout=280)
    assert process.returncode == 0, err
    return out


@pytest.mark.parametrize("kills", [3, pytest.param(40, marks=pytest.mark.long)])
def test_drivers_that_are_killed_leave_both_databases_at_one_epoch(kills: int, pair: Pair) -> None:
    print(f"PENSTOCK_SEED={SEED}")
    done = json.loads(ended(started("kill", pair, kills)))
    assert (done["kills"], done["torn"]) == (kills, 0)
    for number in range(done["tables"]):
        table = replace(pair, table=f"{pair.table}{number}")
        ended(started("last", table, done["generation"]))
        assert dict(table.both()) == held(SEED, EPOCHS - 1)
    assert pair.prepared() == [[], []]


@pytest.mark.parametrize("kills", [3, pytest.param(30, marks=pytest.mark.long)])
def test_servers_that_are_killed_lack_nothing_in_the_end(kills: int, servers: list[PostgresServer], pair: Pair) -> None:
    print(f"PENSTOCK_SEED={SEED}")
    chance, generation = random.Random(SEED), 1
    driver = started("last", pair, generation)
    for _ in range(kills):
        threading.Event().wait(chance.uniform(0.1, 0.5))
        server = chance.choice(servers)
        server.kill()
        server.start()
        if driver.poll() is not None:  # it came to the end: the next one begins in a table of its own
            ended(driver)
            assert dict(pair.both()) == held(SEED, EPOCHS - 1)
            pair.cleared()
            driver = started("last", pair, generation)
    ended(driver)
    assert dict(pair.both()) == held(SEED, EPOCHS - 1)
    assert pair.prepared() == [[], []]
