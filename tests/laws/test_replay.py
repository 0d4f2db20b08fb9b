"""Outputs of a flow are computed again from its log and its marks: the same rows and the same fates, up to any decision (G39)."""

import os
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from amount import cases
from penstock import View
from penstock.core.columns import POSITION
from penstock.engine.diagnose.trace import marks_of
from penstock.engine.replay.expected import Repeated
from penstock.engine.replay.replay import Replay
from penstock.engine.run.context import FlowContext
from penstock.engine.run.driver import Driver
from penstock.engine.run.epoch.decision import Decision, EngineMark
from penstock.errors import Mismatch
from penstock.plan import Output
from penstock.storage.local import LocalStorage
from penstock.storage.memory import MemoryStorage

from .cases import PLANS
from .over_engine import One, OverEngine, Run
from .test_engine_laws import a_case

FIRST = int(os.environ.get("PENSTOCK_LAW_SEED", "0"))
ENGINES = {
    "own-time": OverEngine(True),
    "other-time": OverEngine(False),
    "blind": OverEngine(blind=True),
    "delay": OverEngine(True, delay=4),
}


def ran(engine: OverEngine, name: str, seed: int, directory: Path) -> Run:
    run = Run(engine, a_case(name, seed, engine.blind), directory)
    run.outcome()
    return run


def run_again(driver: Driver, until: Decision, marks: Iterable[EngineMark], directory: Path, seed: int) -> None:
    """Mismatch if books or time come to something else."""
    rng = random.Random(seed)
    storage = LocalStorage(str(directory), sync=False)
    again = Driver(driver.plan, FlowContext(driver.context.log, storage, lambda program: [], buckets=rng.choice((1, 2, 3))))
    again.start()
    try:
        Replay(again, marks, until, rng.choice((1, 3, 1000))).run(lambda report: None)
    finally:
        again.release()


def live_rows(flow: One, output: Output) -> list[tuple[Any, ...]] | None:
    """What the flow has delivered; None where that cannot be compared by what it says alone."""
    if output.kind == "view":
        with View(flow.run.directory / "views", output.name) as view:
            return told(view.rows(), flow.plan.step(output.input).schema.names)
    topic = flow.run.log.topic(output.name)
    tables = [pa.Table.from_batches([chunk.rows]) for p in topic.ends() for chunk in topic.read(p) if chunk.rows.num_rows]
    return sorted((value,) for table in tables for value in table[POSITION].to_pylist())


def told(rows: pa.Table, names: list[str]) -> list[tuple[Any, ...]]:
    return sorted(tuple(map(repr, row)) for row in zip(*(rows[name].to_pylist() for name in names), strict=True))


def same_rows(flow: One, driver: Driver) -> None:
    again = Repeated(driver.context.log, driver.decisions, flow.plan)
    for output in flow.plan.outputs:
        assert driver.last
        output = output if output.kind == "view" else replace(output, key=())  # records may share a key
        expected = again.output(output, "last", driver.last, MemoryStorage(), lambda done, total: None)
        rows = pa.concat_tables([part.put for part in expected.content.parts()])
        if output.kind == "view":
            assert told(rows, flow.plan.step(output.input).schema.names) == live_rows(flow, output)
        else:
            assert sorted((value,) for value in rows[POSITION].to_pylist()) == live_rows(flow, output)


def holds(name: str, engine: OverEngine, seeds: range, directory: Path, every: bool = False) -> None:
    """every: up to each decision that is kept, not only the last."""
    for seed in seeds:
        run = ran(engine, name, seed, directory / str(seed))
        for flow in run.flows:
            driver = flow.start()
            kept = driver.decisions.epochs()
            for epoch in kept if every else kept[-1:]:
                marks = marks_of(driver.decisions, epoch)
                run_again(driver, driver.decisions.read(epoch), marks, directory / f"{seed}-{flow.number}-{epoch}", seed)
            if driver.last:
                same_rows(flow, driver)
            flow.stop()


@pytest.mark.parametrize(("name", "engine"), list(zip(PLANS, cycle(ENGINES), strict=False)))
def test_a_replay_gives_what_the_flow_gave(name: str, engine: str, tmp_path: Path) -> None:
    holds(name, ENGINES[engine], range(FIRST, FIRST + 1), tmp_path)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", PLANS)
def test_a_replay_gives_it_over_many_more_cases(name: str, engine: str, tmp_path: Path) -> None:
    holds(name, ENGINES[engine], range(FIRST + 1_000, FIRST + 1_000 + cases(8)), tmp_path, every=True)


@pytest.mark.parametrize("name", ["tumbling", "join-full", "enrich-window"])
def test_a_replay_may_end_at_any_decision(name: str, tmp_path: Path) -> None:
    holds(name, ENGINES["own-time"], range(FIRST + 50, FIRST + 52), tmp_path, every=True)


def broken(wrong: str, name: str, engine: OverEngine, directory: Path) -> int:
    """In how many of some cases a replay that goes by other marks is noticed."""
    found = Counter[bool]()
    for seed in range(12):
        run = ran(engine, name, seed, directory / str(seed))
        for flow in run.flows[:1]:
            driver = flow.start()
            assert driver.last
            marks = [m for m in marks_of(driver.decisions) if bool(m.step) != (wrong == "answers")]
            try:
                run_again(driver, driver.last, marks, directory / f"{seed}-again", seed)
                found[False] += 1
            except Mismatch:
                found[True] += 1
            flow.stop()
    return found[True]


@pytest.mark.parametrize(("wrong", "name"), [("marks", "tumbling"), ("answers", "enrich-window")])
def test_a_replay_without_the_marks_of_the_flow_is_noticed(wrong: str, name: str, tmp_path: Path) -> None:
    assert broken(wrong, name, ENGINES["delay"] if wrong == "marks" else ENGINES["own-time"], tmp_path) > 0
