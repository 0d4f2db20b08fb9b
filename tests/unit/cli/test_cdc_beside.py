"""Captures beside the flows of one process: they start before the flows, end with them, and do not fail silently."""

import threading
from pathlib import Path
from typing import Any

import pytest

from penstock import Flow
from penstock.capture import kind as kinds
from penstock.capture.port import Batch
from penstock.capture.registry import Captures
from penstock.capture.runner import runs
from penstock.cli.cdc.beside import captures_beside
from penstock.engine.run.options import RunOptions
from penstock.engine.run.planning import facts_of
from penstock.errors import CaptureError, InUse, NotFound, SlotLost
from penstock.log.open import open_log
from unit.cli.calling import calls_of
from unit.cli.toy_kind import ToyDatabase, ToyKind
from waiting import until

URL = "toy://me@db/shop"


class Said:
    """What people are told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)

    def progress(self, tally: Any, report: Any) -> None: ...

    def wait(self, text: str) -> None: ...

    def close(self, tally: Any) -> None: ...


class Failing(ToyKind):
    """Its engine stops for good once it has given everything out, when the test says so."""

    def __init__(self, database: ToyDatabase, now: threading.Event) -> None:
        super().__init__(database)
        self.now = now

    def open(self, *arguments: Any) -> Any:
        engine, now = super().open(*arguments), self.now
        give = engine.next

        def next(wait: float) -> Batch | None:
            if now.is_set():
                raise SlotLost("the slot is gone")
            now.wait(0.01)
            return give(wait)

        engine.next = next  # type: ignore[method-assign]
        return engine


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ToyDatabase:
    made = ToyDatabase()
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(kinds, "KINDS", {"debezium": lambda: ToyKind(made)})
    for name in ("shop", "crm"):
        assert calls_of("cdc")("add", name, URL, "--tables", "*").code == 0
    return made


def flow() -> Flow:
    made = Flow("people")
    made.table("shop.public.users").view("users")
    return made


def test_they_run_as_long_as_the_flows_do(database: ToyDatabase) -> None:
    said = Said()
    with captures_beside(["shop", "crm"], [flow()], RunOptions("run"), said) as stop:
        assert stop is not None
        assert until(lambda: all(runs(Captures().storage(name)) for name in ("shop", "crm")))
        assert not stop.is_set()
    assert not any(runs(Captures().storage(name)) for name in ("shop", "crm"))
    assert [line for line in said.lines if line.startswith("shop: stopped · ")]
    assert [line for line in said.lines if line.startswith("crm: stopped · ")]


def test_flows_begin_when_the_columns_of_the_tables_that_they_read_are_known(database: ToyDatabase) -> None:
    with captures_beside(["shop"], [flow()], RunOptions("run"), Said()):
        facts = facts_of(open_log(), ["shop.public.users"])["shop.public.users"]
        assert facts.table is not None
        assert facts.table.key == ("id",)


@pytest.mark.parametrize("mode", ["catch_up", "drain"])
def test_in_a_run_with_an_end_they_catch_up_first(database: ToyDatabase, mode: Any) -> None:
    said = Said()
    with captures_beside(["shop"], [flow()], RunOptions(mode), said):
        assert not runs(Captures().storage("shop"))
        assert [line for line in said.lines if line.startswith("shop: caught up · ")]
        (row,) = calls_of("cdc")("status", "shop").rows
        assert row["batch"] > 0
    assert sum(line.startswith("shop: ") and " · " in line for line in said.lines) == 1, "its end is told once"


def test_one_that_fails_ends_the_run_with_its_message(database: ToyDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    now, said = threading.Event(), Said()
    monkeypatch.setattr(kinds, "KINDS", {"debezium": lambda: Failing(database, now)})

    def run() -> None:
        with captures_beside(["shop", "crm"], [flow()], RunOptions("run"), said) as stop:
            assert stop is not None
            now.set()
            assert stop.wait(60)

    with pytest.raises(SlotLost, match="the slot is gone"):
        run()
    assert [line for line in said.lines if ": failed · " in line]


def test_one_that_fails_before_its_tables_are_known_lets_no_flow_begin(
    database: ToyDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = threading.Event()
    now.set()
    monkeypatch.setattr(kinds, "KINDS", {"debezium": lambda: Failing(database, now)})
    with pytest.raises(SlotLost), captures_beside(["shop"], [flow()], RunOptions("run"), Said()):
        pytest.fail("the flows have begun")


def test_a_flow_that_fails_ends_them_and_its_error_is_the_one_that_is_told(database: ToyDatabase) -> None:
    with pytest.raises(CaptureError, match="mine"), captures_beside(["shop"], [flow()], RunOptions("run"), Said()):
        raise CaptureError("mine")
    assert not runs(Captures().storage("shop"))


def test_one_that_runs_elsewhere_or_is_not_there_is_refused(database: ToyDatabase) -> None:
    with pytest.raises(NotFound), captures_beside(["nobody"], [flow()], RunOptions("run"), Said()):
        pytest.fail("the flows have begun")
    with (
        Captures().storage("shop").lock("lock"),
        pytest.raises(InUse),
        captures_beside(["shop"], [flow()], RunOptions("run"), Said()),
    ):
        pytest.fail("the flows have begun")


def test_without_captures_there_is_nothing_to_wait_for() -> None:
    with captures_beside([], [flow()], RunOptions("run"), Said()) as stop:
        assert stop is None
