"""Bugs planted in stores of files and of databases: the contract suites must catch each of them."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.log.memory import MemoryLog
from penstock.sinks.port import Sink, SinkContext, SinkSpec
from penstock.sinks.stores.files.delta import DeltaStore, delta
from penstock.sinks.stores.files.iceberg import IcebergStore, iceberg
from penstock.sinks.stores.files.parquet.definition import parquet
from penstock.sinks.stores.files.parquet.store import ParquetStore
from penstock.sinks.stores.port import Changes, Note, Refusal, Store, Transaction
from penstock.sinks.stores.sink import StoreSink
from penstock.sinks.stores.sql.duckdb import DuckdbStore, duckdb
from penstock.storage.local import LocalStorage
from penstock.storage.port import Storage
from penstock.testing.contracts.sink import Crash, Row, SinkContract
from penstock.testing.contracts.sink_changes import ChangesContract
from store_kinds import SERVED, at_server, catalog
from store_suite import Appending, OfStore, StoreSuite

pytestmark = pytest.mark.faults

Wrong = Callable[[Store], Store]


class Wrapped:
    """A store that passes everything on. Bugs are planted in what it hands out."""

    def __init__(self, store: Store) -> None:
        self.store = store

    @property
    def called(self) -> str:
        return self.store.called

    def open(self) -> None:
        self.store.open()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        with self.store.transaction() as transaction:
            yield transaction

    def close(self) -> None:
        self.store.close()


class MarkerAfterTheTransaction(Wrapped):
    """Rows are committed first, the marker by a transaction of its own."""

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        kept: list[Note] = []
        with ExitStack() as rows:
            transaction = rows.enter_context(self.store.transaction())
            yield _Keeping(transaction, lambda note: (kept.append(note), rows.close()))
        for note in kept:
            with self.store.transaction() as transaction:
                transaction.note()
                transaction.keep(note)


class MarkerBeforeTheTransaction(Wrapped):
    """The marker is committed as soon as it is known, the rows behind it."""

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        written: list[Changes] = []
        with ExitStack() as marker:
            transaction = marker.enter_context(self.store.transaction())
            waiting = _Writing(transaction, written.append)
            yield _Keeping(waiting, lambda note: (transaction.keep(note), marker.close()))
        for changes in written:
            with self.store.transaction() as transaction:
                transaction.note()
                transaction.write(changes)


class NoMarker(Wrapped):
    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        with self.store.transaction() as transaction:
            yield _Keeping(transaction, lambda note: None)


class NothingGoes(Wrapped):
    """Rows that are taken out of a store stay."""

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        with self.store.transaction() as transaction:
            written = lambda changes: transaction.write(Changes(changes.put, changes.gone.slice(0, 0)))  # noqa: E731
            yield _Writing(transaction, written)


class _Keeping:
    def __init__(self, transaction: "Transaction | _Writing", keep: Callable[[Note], object]) -> None:
        self.note, self.write, self._keep = transaction.note, transaction.write, keep

    def keep(self, note: Note) -> None:
        self._keep(note)


class _Writing:
    def __init__(self, transaction: Transaction, write: Callable[[Changes], object]) -> None:
        self.note, self.keep, self._write = transaction.note, transaction.keep, write

    def write(self, changes: Changes) -> Sequence[Refusal]:
        self._write(changes)
        return ()


def _duckdb(place: Path, context: SinkContext) -> Store:
    return DuckdbStore(duckdb(place / "warehouse.db", "results"), context.spec)


def _parquet(place: Path, context: SinkContext) -> Store:
    return ParquetStore(parquet(place / "lake"), context.spec, LocalStorage(place / "lake"))


def _delta(place: Path, context: SinkContext) -> Store:
    return DeltaStore(delta(place / "lake"), context.spec)


def _iceberg(place: Path, context: SinkContext) -> Store:
    return IcebergStore(iceberg("lake", "shop.results", properties=catalog(place)), context.spec)


def _served(kind: str) -> Callable[[Path, SinkContext], Store]:
    return lambda place, context: SERVED[kind].define(place).store(context)  # type: ignore[attr-defined,no-any-return]


STORES: dict[str, Callable[[Path, SinkContext], Store]] = {
    "duckdb": _duckdb,
    "parquet": _parquet,
    "delta": _delta,
    "iceberg": _iceberg,
    "postgres": _served("postgres"),
    "mariadb": _served("mariadb"),
}


class _Planted(OfStore):
    def __init__(self, kind: str, wrong: Wrong) -> None:
        self.kind, self.wrong = kind, wrong  # type: ignore[misc]

    def make(self, place: Path, spec: SinkSpec, storage: Storage, fail: Callable[[str], None]) -> Sink:
        context = SinkContext(spec, MemoryLog(), storage, place, fail)
        return StoreSink(context, self.wrong(STORES[self.kind](place, context)))


class _Rows(Appending, _Planted, SinkContract):
    ordered = False

    def rows(self, place: Path) -> list[Row]:
        return sorted(super().rows(place))


class _Changes(_Planted, ChangesContract):
    pass


def caught(contract: Any, directory: Path, base: type) -> Iterator[str]:
    """Names of the tests of the suite that fail."""
    for name, _ in inspect.getmembers(base, inspect.isfunction):
        if name.startswith("test_"):
            try:
                getattr(contract, name)(directory / name)
            except pytest.skip.Exception:
                continue
            except (Exception, Crash, pytest.fail.Exception):
                yield name


@pytest.fixture
def directory(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return at_server(tmp_path, request.getfixturevalue(kind)) if kind in SERVED else tmp_path


@pytest.mark.parametrize("kind", ["duckdb", "parquet"])  # the others take long, and pass the suites in tests/contract
def test_the_suites_find_nothing_wrong_with_stores_that_only_pass_on(kind: str, directory: Path) -> None:
    assert list(caught(_Rows(kind, Wrapped), directory / "rows", SinkContract)) == []
    assert list(caught(_Changes(kind, Wrapped), directory / "changes", ChangesContract)) == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a test that fails leaves sinks open
@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("wrong", [MarkerAfterTheTransaction, MarkerBeforeTheTransaction, NoMarker])
def test_a_marker_beside_the_transaction_is_caught(kind: str, wrong: Wrong, directory: Path) -> None:
    assert next(caught(_Rows(kind, wrong), directory, SinkContract))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a test that fails leaves sinks open
@pytest.mark.parametrize("kind", STORES)
def test_rows_that_do_not_go_are_caught(kind: str, directory: Path) -> None:
    assert next(caught(_Changes(kind, NothingGoes), directory, ChangesContract))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a test that fails leaves sinks open
@pytest.mark.parametrize("kind", ["mariadb"])
def test_statements_that_commit_by_themselves_are_caught(kind: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a change of a table would make them, within an epoch."""
    monkeypatch.setattr("pymysql.connections.Connection.begin", lambda connection: None)
    assert next(caught(_Rows(kind, Wrapped), directory, SinkContract))


class _Waking(StoreSuite):
    kind = "iceberg"


def test_commits_that_move_behind_those_of_another_driver_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.sinks.stores.files.iceberg.RETRIES", "not.the.setting")  # PyIceberg retries, as it does by itself
    with pytest.raises(pytest.fail.Exception):
        _Waking().test_a_driver_that_wakes_up_in_its_epoch_writes_nothing("store.rows", tmp_path)
