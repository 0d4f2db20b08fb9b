"""The law of a capture: whatever is written to a real PostgreSQL, and however often the capture and the server are killed, the
topics have every change once, in its place, and folded they are the tables."""

from pathlib import Path
from random import Random

import pytest

from capture_followed import NAME, Followed, LastRow, check_law
from capture_oracle import Law
from capture_workload import Workload
from faults.capture_process import PATIENCE, Captured, captured
from faults.seeds import SEED
from penstock.testing.contracts.capture.records import journal_of
from penstock.testing.servers.postgres import PostgresServer
from waiting import until

pytestmark = pytest.mark.faults


def kill_often(place: Path, seed: int, kills: int, restarts: int, rows: int) -> None:
    """Sessions write, the capture is killed at its points and between them, the server ends as in a crash and starts again."""
    print(f"PENSTOCK_SEED={seed}")
    random, chunks = Random(seed), list[int]()
    with PostgresServer(place / "server") as server:
        followed = Followed(server, rows)
        with captured("capture_child.py", place / "home", server.url) as capture:
            with Workload(server.url, seed, pace=0.02) as workload:
                crashes = set(random.sample(range(1, kills), restarts))
                for number in range(kills):
                    kill_once(capture, random, again=random.random() < 0.4)
                    if number in crashes:
                        server.restart_at_once()
                    chunks.append(copied(capture))
            assert workload.transactions > kills
            capture.start(again=random.random() < 0.5)
            assert until(
                lambda: not capture.gone() and capture.left == 0, PATIENCE
            )  # before all rows are changed: none would be copied
            law = finish(followed, capture)
    print(f"{len(law.oracle.commits)} transactions, {law.copied} rows copied, {len(capture.seen)} points passed")
    print(f"chunks that were written at each kill: {chunks}")


def copied(capture: Captured) -> int:
    """How many chunks are written."""
    return sum(record.status == "END" and record.id.startswith("snapshot:") for record in journal_of(capture.log, NAME))


def finish(followed: Followed, capture: Captured) -> Law:
    """Everything is written; then the topics must say what the server did."""
    followed.finish()
    last = LastRow(capture.log)
    assert until(lambda: not capture.gone() and capture.left == 0 and last.there(), PATIENCE)
    capture.kill()
    law = check_law(followed, capture.log)
    assert law.copied
    return law


def kill_once(capture: Captured, random: Random, again: bool) -> None:
    """A start that ends at some point of the writer, in a copy or wherever it is, or at any moment."""
    if random.random() < 0.7:
        copying = random.random() < 0.6
        capture.start(random.choice([1, 2, 3, 5, 8, 13]), copying=copying, again=again)
        assert until(lambda: capture.gone() or (copying and capture.left == 0), PATIENCE)
        if not capture.gone():
            capture.kill()  # there is nothing left to copy
    else:
        capture.start(again=again)
        lines = random.choice([0, 0, 1, 4, 12])
        assert until(lambda: capture.hear(0.05) and capture.points >= lines, PATIENCE)
        capture.kill()


def test_a_capture_killed_while_it_copies_and_streams_says_what_the_server_did(tmp_path: Path, postgres: PostgresServer) -> None:
    kill_often(tmp_path, SEED, kills=6, restarts=1, rows=900)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(SEED, SEED + 4))
def test_a_capture_killed_again_and_again_says_what_the_server_did(tmp_path: Path, postgres: PostgresServer, seed: int) -> None:
    kill_often(tmp_path, seed, kills=60, restarts=12, rows=3000)
