"""Embedded search indexes whose writers are killed; and bugs that the suite must catch."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.contract import test_sink_search as of_search

from faults.search_killed import changes_of, opened, whole
from faults.seeds import SEED
from penstock.errors import Mismatch
from penstock.sinks.port import Sink, SinkContext, SinkSpec
from penstock.sinks.stores.port import Changes, Refusal
from penstock.sinks.stores.search.fts5 import SearchDefinition, SearchStore
from penstock.sinks.stores.search.fts5_tables import connect
from penstock.sinks.stores.search.index import IndexMeta
from penstock.sinks.stores.search.tantivy import TantivyDefinition, TantivyStore, TantivyTransaction
from penstock.sinks.stores.sink import POINTS, StoreSink
from penstock.testing.contracts.sink import SinkContract
from penstock.testing.contracts.sink_changes import ChangesContract
from search_kinds import KINDS, definition_of
from suites import caught

pytestmark = pytest.mark.faults
TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("kills", [3, pytest.param(30, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_writer_killed_at_any_point_and_moment_leaves_one_epoch_whole(kind: str, kills: int, tmp_path: Path) -> None:
    print(f"PENSTOCK_SEED={SEED}")
    command = [sys.executable, str(TESTS / "faults" / "search_killed.py"), kind, str(tmp_path), str(SEED), str(kills)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=280, env={**os.environ, "PYTHONPATH": str(TESTS)})
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    assert (said["killed"], said["torn"]) == (len(POINTS) + kills, 0), "rows and marker are not of one epoch"
    last = opened(kind, tmp_path, said["generation"])
    assert last.last >= len(POINTS)
    assert whole(kind, tmp_path, last.last), "rows and marker are not of one epoch"
    last.give_table(*changes_of(last.last + 1))
    assert whole(kind, tmp_path, last.last)


@pytest.mark.parametrize("kind", KINDS)
def test_an_old_writer_that_wakes_up_is_refused(kind: str, tmp_path: Path) -> None:
    old = opened(kind, tmp_path, 1)
    old.give_table(*changes_of(0))
    opened(kind, tmp_path, 2).give_table(*changes_of(1))
    with pytest.raises(Mismatch):
        old.give_table(*changes_of(1))
    assert whole(kind, tmp_path, 1)


class WithoutTransactions:
    """Every statement is a transaction of its own."""

    def __init__(self, path: Path) -> None:
        self.real = connect(path)

    def execute(self, statement: str, *values: Any) -> Any:
        ignored = statement.startswith(("BEGIN", "COMMIT", "ROLLBACK"))
        return None if ignored else self.real.execute(statement, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


class WordsStay(WithoutTransactions):
    """What was said of a row that is gone can still be found."""

    def execute(self, statement: str, *values: Any) -> Any:
        if statement.startswith("INSERT OR REPLACE INTO meta"):
            self.real.execute("DROP TRIGGER IF EXISTS row_gone")
        return self.real.execute(statement, *values)


def over(base: type[Any], bug: type[Any]) -> Any:
    """The suite, over an index that is opened with the bug."""

    class Planted(base):  # type: ignore[misc]
        def make(self, place: Path, spec: SinkSpec, storage: Any, fail: Any) -> Sink:
            context = SinkContext(spec, None, storage, place, fail)  # type: ignore[arg-type]
            definition = definition_of("fts5", place)
            assert isinstance(definition, SearchDefinition)
            return StoreSink(context, SearchStore(definition, spec, place / "index.db", bug))

    return Planted()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a test that fails leaves sinks open
@pytest.mark.parametrize(
    ("suite", "bug"), [(of_search.TestSearch, WithoutTransactions), (of_search.TestSearchWithChanges, WordsStay)]
)
def test_a_planted_bug_is_caught(suite: type[SinkContract | ChangesContract], bug: type[Any], tmp_path: Path) -> None:
    assert caught(over(suite, connect), tmp_path / "right") == []  # type: ignore[arg-type]
    assert caught(over(suite, bug), tmp_path / "wrong")


class RowsAtOnce(TantivyTransaction):
    """The rows have a commit of their own, before that of the marker."""

    def __init__(self, index: Any, writer: Any, meta: IndexMeta) -> None:
        super().__init__(index, writer, meta)
        self.writer = writer

    def write(self, changes: Changes) -> Sequence[Refusal]:
        refusals = super().write(changes)
        self.writer.commit()
        return refusals


class NothingGoes(TantivyTransaction):
    """Rows that are deleted can still be found."""

    def write(self, changes: Changes) -> Sequence[Refusal]:
        return super().write(Changes(changes.put, changes.gone.slice(0, 0)))


def over_tantivy(base: type[Any], begin: type[TantivyTransaction]) -> Any:
    class Planted(base):  # type: ignore[misc]
        def make(self, place: Path, spec: SinkSpec, storage: Any, fail: Any) -> Sink:
            context = SinkContext(spec, None, storage, place, fail)  # type: ignore[arg-type]
            definition = definition_of("tantivy", place)
            assert isinstance(definition, TantivyDefinition)
            return StoreSink(context, TantivyStore(definition, spec, place / "index", begin))

    return Planted()


@pytest.mark.parametrize(("suite", "bug"), [(of_search.TestTantivy, RowsAtOnce), (of_search.TestTantivyWithChanges, NothingGoes)])
def test_a_bug_planted_in_tantivy_is_caught(suite: type[Any], bug: type[TantivyTransaction], tmp_path: Path) -> None:
    assert caught(over_tantivy(suite, bug), tmp_path)
