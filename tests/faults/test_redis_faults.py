"""A real Valkey that stands still, answers that are lost, drivers that were replaced; and bugs that the suite must catch."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from faults.redis_faults import AnswerLost, MarkerAtOnce, NoWatch, RowsAtOnce, build_with
from faults.server_killed import CHANGING, Victim, changes_of, give_all, killed_at, numbers
from penstock.errors import Mismatch, SinkUnavailable
from penstock.sinks import redis
from penstock.sinks.port import Sink, SinkContext, SinkSpec
from penstock.sinks.stores.redis.resp import Connection
from penstock.sinks.stores.redis.store import RedisTransaction
from penstock.sinks.stores.sink import POINTS
from penstock.storage.port import Storage
from penstock.testing.contracts.sink import Row, SinkContract
from penstock.testing.servers.fixtures import missing
from penstock.testing.servers.jars import NotToBeHad
from penstock.testing.servers.valkey import ValkeyServer
from redis_keys import found
from store_epochs import Build, Epochs, spec_of
from suites import caught

pytestmark = pytest.mark.faults


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[ValkeyServer]:
    """A server of the test's own."""
    server = ValkeyServer(tmp_path)
    try:
        server.start()
    except NotToBeHad as error:
        missing(str(error))
    yield server
    server.stop()


def victim_of(server: ValkeyServer, **parts: Any) -> Victim:
    return Victim(server, build_with(redis(server.url, "killed"), **parts), lambda: numbers(found(server, "killed"), b"n"))


def test_a_frozen_server_is_given_up_and_the_epoch_is_there_once(mortal: ValkeyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.sinks.stores.redis.address.ANSWER_SECONDS", 0.5)
    victim = victim_of(mortal)
    epochs = Epochs(victim.build, CHANGING)
    rows, ops = changes_of(0, victim.rows)
    mortal.freeze()
    with pytest.raises(SinkUnavailable):
        epochs.give(*rows, ops=ops)
    mortal.thaw()
    monkeypatch.undo()
    give_all(epochs, victim, 2)
    assert victim.has(1)


def test_where_the_answer_to_a_commit_was_lost_the_marker_says_what_became_of_it(valkey: ValkeyServer) -> None:
    definition, spec = redis(valkey.url, "cut"), spec_of("cut", "id int, n int", "id")
    Epochs(definition.build, spec).give({"id": 1, "n": 0})
    cut = Epochs(build_with(definition, AnswerLost), spec)
    with pytest.raises(SinkUnavailable):
        cut.give({"id": 1, "n": 1}, {"id": 2, "n": 1})
    assert len(found(valkey, "cut")) == 2
    assert cut.sink.open("life", 1) == 1, "the marker says that it is there"
    cut.deliver(1)
    assert found(valkey, "cut")[b"1"] == {b"id": b"1", b"n": b"1"}


def overtaken(build: Build, prefix: str) -> type[Exception] | None:
    """An old driver falls asleep between reading the marker and its commit; meanwhile its successor takes over. What it meets when
    it wakes up."""
    spec, asleep = spec_of(prefix, "id int, n int", "id"), threading.Event()

    def sleep(point: str) -> None:
        if point == "store.marker" and not asleep.is_set():
            asleep.set()
            Epochs(build, spec, generation=2).give({"id": 1, "n": 2})

    old = Epochs(build, spec, fail=sleep)
    try:
        old.give({"id": 1, "n": 1})
    except SinkUnavailable:
        with pytest.raises(Mismatch):
            old.sink.open("life", 1)
        return Mismatch
    return None


def test_an_old_driver_that_wakes_up_before_its_commit_is_refused(valkey: ValkeyServer) -> None:
    assert overtaken(redis(valkey.url, "asleep").build, "asleep") is Mismatch
    assert found(valkey, "asleep") == {b"1": {b"id": b"1", b"n": b"2"}}


def test_a_watch_that_is_left_out_lets_an_old_driver_write(valkey: ValkeyServer) -> None:
    assert overtaken(build_with(redis(valkey.url, "unwatched"), NoWatch), "unwatched") is None


class _Suite(SinkContract):
    points = POINTS

    def __init__(self, server: ValkeyServer, connect: type[Connection], begin: type[RedisTransaction]) -> None:
        self.server, self.connect, self.begin = server, connect, begin

    def place(self, directory: Path) -> str:
        return f"p{abs(hash(directory))}"

    def make(self, place: str, spec: SinkSpec, storage: Storage, fail: Callable[[str], None]) -> Sink:
        context = SinkContext(replace(spec, name=place), None, storage, Path(), fail)  # type: ignore[arg-type]
        return build_with(redis(self.server.url, place), self.connect, self.begin)(context)

    def rows(self, place: str) -> list[Row]:
        return sorted((int(row[b"id"]), row[b"text"].decode()) for row in found(self.server, place).values())


def test_the_suite_finds_nothing_wrong_with_what_is_right(valkey: ValkeyServer, tmp_path: Path) -> None:
    assert caught(_Suite(valkey, Connection, RedisTransaction), tmp_path) == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a test that fails leaves sinks open
@pytest.mark.parametrize("begin", [RowsAtOnce, MarkerAtOnce])
def test_a_marker_outside_the_transaction_of_its_rows_is_caught(
    begin: type[RedisTransaction], valkey: ValkeyServer, tmp_path: Path
) -> None:
    failed = caught(_Suite(valkey, Connection, begin), tmp_path)
    assert "test_a_crash_at_any_point_loses_nothing_and_doubles_nothing" in failed


def test_rows_before_their_marker_are_found_out_when_the_server_is_killed(mortal: ValkeyServer) -> None:
    with pytest.raises(AssertionError, match="not of one epoch"):
        killed_at("store.rows", victim_of(mortal, begin=RowsAtOnce))
