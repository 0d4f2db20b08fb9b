"""A real Valkey that is killed, answers that are lost, drivers that were replaced; and bugs that the suite must catch."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from redis.exceptions import ConnectionError

from faults.redis_faults import AnswerLost, MarkerAtOnce, NoWatch, RowsAtOnce, build_with
from faults.seeds import SEED
from penstock.core.change import Op
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

CHANGING = spec_of("killed", "id int, n int", "id", updating=True)
ROWS = 5_000


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


def changes_of(epoch: int) -> tuple[list[dict[str, int]], list[Op]]:
    """In every epoch all keys get its number, and a fifth of them go."""
    rows = [{"id": i, "n": epoch} for i in range(ROWS)]
    return rows, [Op.DELETE if i % 5 == epoch % 5 else Op.INSERT for i in range(ROWS)]


def whole(server: ValkeyServer, epoch: int) -> bool:
    held = {int(key): int(row[b"n"]) for key, row in found(server, "killed").items()}
    return held == {i: epoch for i in range(ROWS) if i % 5 != epoch % 5}


def give_all(epochs: Epochs, server: ValkeyServer, count: int, before: Callable[[], None] = lambda: None) -> int:
    """Delivers so many epochs, as the engine does: after a failure it opens the sink and gives what it lacks. How often that was
    needed."""
    failures = 0
    while epochs.last < count - 1:
        before()
        with suppress(SinkUnavailable):
            rows, ops = changes_of(epochs.last + 1)
            epochs.storage.files.pop(f"{epochs.last + 1}.arrow", None)
            epochs.give(*rows, ops=ops)
            continue
        failures += 1
        while not opened_again(epochs, server):  # it may be killed meanwhile, too
            pass
    return failures


def opened_again(epochs: Epochs, server: ValkeyServer) -> bool:
    """Whether the server was there long enough to be looked at."""
    if server.process is None or server.process.poll() is not None:
        server.start()
    with suppress(SinkUnavailable, ConnectionError):
        epochs.last = epochs.sink.open("life", 1)
        assert epochs.last < 0 or whole(server, epochs.last), "rows and marker are not of one epoch"
        return True
    return False


def killed_at(point: str, server: ValkeyServer, build: Build) -> None:
    """The server dies in the second epoch, when the point is passed."""
    passed: list[str] = []

    def kill(name: str) -> None:
        passed.append(name)
        if name == point and passed.count(point) == 2:
            server.kill()

    epochs = Epochs(build, CHANGING, fail=kill)
    give_all(epochs, server, 4)
    assert whole(server, 3)
    assert passed.count("store.committed") >= 4


@pytest.mark.parametrize("point", POINTS)
def test_a_server_killed_at_any_point_has_each_epoch_whole(point: str, mortal: ValkeyServer) -> None:
    killed_at(point, mortal, redis(mortal.url, "killed").build)


@pytest.mark.parametrize("kills", [3, pytest.param(30, marks=pytest.mark.long)])
def test_a_server_killed_at_any_moment_has_each_epoch_whole(kills: int, mortal: ValkeyServer) -> None:
    print(f"PENSTOCK_SEED={SEED}")
    chance, timers = random.Random(SEED), list[threading.Timer]()

    def kill_soon() -> None:
        if len(timers) < kills and mortal.process:
            timers.append(threading.Timer(chance.uniform(0, 0.2), mortal.process.kill))
            timers[-1].start()

    epochs = Epochs(redis(mortal.url, "killed").build, CHANGING)
    give_all(epochs, mortal, kills + 3, kill_soon)
    assert len(timers) == kills
    for timer in timers:
        timer.join()
    mortal.restart()
    assert whole(mortal, epochs.last)


def test_a_frozen_server_is_given_up_and_the_epoch_is_there_once(mortal: ValkeyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.sinks.stores.redis.resp.ANSWER_SECONDS", 0.5)
    epochs = Epochs(redis(mortal.url, "killed").build, CHANGING)
    rows, ops = changes_of(0)
    mortal.freeze()
    with pytest.raises(SinkUnavailable):
        epochs.give(*rows, ops=ops)
    mortal.thaw()
    monkeypatch.undo()
    give_all(epochs, mortal, 2)
    assert whole(mortal, 1)


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
        killed_at("store.rows", mortal, build_with(redis(mortal.url, "killed"), begin=RowsAtOnce))
