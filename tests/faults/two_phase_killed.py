"""Drivers of a sink of two databases that are killed; run as a program, which forks.

    python two_phase_killed.py kill FIRST SECOND TABLE SEED KILLS
    python two_phase_killed.py last FIRST SECOND TABLE SEED GENERATION

kill: ends KILLS drivers with SIGKILL, each a group of its own, at points of the sink and at any moment, and prints how many tables
it took, and how often the databases were not at one epoch behind a new start. last: a driver that comes to the end, whatever
becomes of the servers."""

import json
import os
import random
import select
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

import pyarrow as pa

from penstock.core.change import Op
from penstock.errors import SinkUnavailable
from penstock.sinks.port import nothing
from penstock.sinks.stores.two_phase.sink import POINTS, TwoPhaseSink
from penstock.storage.memory import MemoryStorage
from penstock.testing.contracts.sink import SPEC, delivery
from store_suite import staged
from two_phase_pair import Pair

CHANGING = replace(SPEC, updating=True)
EPOCHS, KEYS, CHANGES = 30, 300, 150
LONGEST = 0.6  # seconds from the moment a driver begins to its end


def history(seed: int) -> Iterator[dict[int, str | None]]:
    """What each epoch does to keys: a text, or None where the key goes."""
    chance = random.Random(seed)
    for epoch in range(EPOCHS):
        keys = chance.sample(range(KEYS), CHANGES)
        yield {key: None if chance.random() < 0.2 else f"{epoch}/{key}" for key in keys}


def held(seed: int, epoch: int) -> dict[int, str]:
    """What holds behind an epoch."""
    found: dict[int, str | None] = {}
    for number, changes in enumerate(history(seed)):
        found |= changes if number <= epoch else {}
    return {key: text for key, text in found.items() if text is not None}


def sink_of(pair: Pair, seed: int, fail: Callable[[str], None] = nothing) -> TwoPhaseSink:
    storage = MemoryStorage()
    for epoch, changes in enumerate(history(seed)):
        rows = pa.table({"id": list(changes), "text": list(changes.values())}, schema=SPEC.schema.arrow)
        staged(storage, epoch, rows, [Op.DELETE if text is None else Op.UPDATE_AFTER for text in changes.values()])
    return pair.sink(CHANGING, storage, fail)


def deliver_rest(pair: Pair, seed: int, generation: int, fail: Callable[[str], None] = nothing, begun: int = -1) -> None:
    """To the end, again and again while a server is away."""
    sink = sink_of(pair, seed, fail)
    if begun >= 0:
        os.write(begun, b".")
    for _ in range(1_000):
        try:
            for epoch in range(sink.open("life", generation) + 1, EPOCHS):
                sink.deliver(delivery(epoch, generation))
            break
        except SinkUnavailable:
            select.select([], [], [], 0.05)
    sink.close()


def whole(pair: Pair, seed: int, generation: int) -> bool:
    """Whether a new driver finds both databases at its epoch; looked at by a child, so that this process opens no connection."""
    child = os.fork()
    if not child:
        sink = sink_of(pair, seed)
        epoch = sink.open("life", generation)
        first, second = pair.rows()
        os._exit(0 if dict(first) == dict(second) == held(seed, epoch) and len(first) == len(second) == len(dict(first)) else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def killed(pair: Pair, seed: int, generation: int, at: tuple[str, int] | None, seconds: float) -> bool:
    """Whether a driver was killed: by itself at the point, or from here so many seconds later."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        os.setpgid(0, 0)
        passed: list[str] = []

        def fail(point: str) -> None:
            passed.append(point)
            if at and point == at[0] and passed.count(point) == at[1]:
                os.killpg(0, signal.SIGKILL)

        deliver_rest(pair, seed, generation, fail, writing)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb", buffering=0) as begun:
        begun.read(1)
        select.select([begun], [], [], None if at else seconds)  # its end is seen when the process ends
    if not at:
        os.killpg(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def kill(pair: Pair, seed: int, kills: int) -> dict[str, int]:
    """Over as many tables as it takes: a driver that comes to the end is followed by one of the next table."""
    chance, generation, done, torn, tables = random.Random(seed), count(1), 0, 0, 0
    points = [(point, nth) for point in POINTS for nth in (1, 2)]
    moments: list[tuple[str, int] | None] = [*chance.sample(points, min(len(points), kills // 3))]
    while done < kills:
        table = replace(pair, table=f"{pair.table}{tables}")
        ended = killed(table, seed, next(generation), moments.pop() if moments else None, chance.uniform(0, LONGEST))
        torn += not whole(table, seed, next(generation))
        done, tables = done + ended, tables + (not ended)
    return {"kills": done, "torn": torn, "tables": tables + 1, "generation": next(generation)}


if __name__ == "__main__":
    what, first, second, table, *numbers = sys.argv[1:]
    place, (given, number) = Pair((first, second), table), map(int, numbers)
    if what == "kill":
        print(json.dumps(kill(place, given, number)))
    else:
        deliver_rest(place, given, number)
