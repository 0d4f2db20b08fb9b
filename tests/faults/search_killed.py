"""A process that writes epochs to an embedded search index until it is killed; run as a program, which forks.

    python search_killed.py KIND PLACE SEED KILLS

kills children at every point of the sink, and KILLS more at any moment, and prints how many were killed, and after how many of
them the index was not one epoch."""

import json
import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from penstock.core.change import Op
from penstock.core.schema import Schema
from penstock.sinks.port import nothing
from penstock.sinks.stores.sink import POINTS
from penstock.views.search import SearchIndex
from search_kinds import definition_of
from store_epochs import Epochs, spec_of

ROWS = 400
SPEC = spec_of("killed", "id int, text string", "id", updating=True)


def changes_of(epoch: int) -> tuple[pa.Table, list[Op]]:
    """In every epoch all rows say its number, and a fifth of them go."""
    columns = {"id": list(range(ROWS)), "text": [f"every row of epoch{epoch}"] * ROWS}
    rows = pa.table(columns, schema=Schema.of("id int, text string").arrow)
    return rows, [Op.DELETE if i % 5 == epoch % 5 else Op.INSERT for i in range(ROWS)]


def opened(kind: str, place: Path, generation: int, fail: Callable[[str], None] = nothing) -> Epochs:
    return Epochs(definition_of(kind, place).build, SPEC, generation, fail=fail)


def whole(kind: str, place: Path, epoch: int) -> bool:
    """Whether the index holds exactly this epoch."""
    with SearchIndex(definition_of(kind, place).place.given) as index:
        rows = index.find("every", limit=10 * ROWS).to_pylist()
    held = {row["id"]: row["text"] for row in rows}
    return len(held) == len(rows) and held == {i: f"every row of epoch{epoch}" for i in range(ROWS) if i % 5 != epoch % 5}


def write(kind: str, place: Path, generation: int, point: str | None = None, epochs: int = 3) -> None:
    """Epochs behind the last one; it kills itself in the second of them, when it passes the point."""
    passed: list[str] = []

    def fail(name: str) -> None:
        passed.append(name)
        if name == point and passed.count(name) == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    sink = opened(kind, place, generation, fail)
    for _ in range(epochs):
        sink.give_table(*changes_of(sink.last + 1))
    sink.sink.close()


def killed_child(kind: str, place: Path, generation: int, point: str | None, after: float | None) -> bool:
    """Whether a child that writes was killed: by itself at the point, or from here so many seconds later."""
    child = os.fork()
    if not child:
        write(kind, place, generation, point, epochs=3 if point else 1_000)
        os._exit(0)
    if after is not None:
        threading.Event().wait(after)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def is_whole(kind: str, place: Path, generation: int) -> bool:
    """Whether rows and marker are of one epoch; looked at by a child, so that this process stays without threads."""
    child = os.fork()
    if not child:
        last = opened(kind, place, generation).last
        os._exit(0 if last < 0 or whole(kind, place, last) else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def main(kind: str, place: Path, seed: int, kills: int) -> dict[str, int]:
    chance, killed, torn = random.Random(seed), 0, 0
    moments = [(point, None) for point in POINTS] + [(None, chance.uniform(0.05, 1.0)) for _ in range(kills)]
    for generation, (point, after) in enumerate(moments, 1):
        killed += killed_child(kind, place, generation, point, after)
        torn += not is_whole(kind, place, generation)
    return {"killed": killed, "torn": torn, "generation": len(moments) + 1}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))))
