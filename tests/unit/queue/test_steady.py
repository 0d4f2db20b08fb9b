"""Delays and times to live: whatever is done to the machine's clock, an hour is an hour."""

import time
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.core.time import FixedClock, SystemClock
from penstock.errors import Damaged
from penstock.log.file.log import FileLog
from penstock.log.groups.leases import ManualClock
from penstock.queue.memory import MemoryQueues
from penstock.queue.on_log.queues import LogQueues
from penstock.queue.port import Consumer, Message, QueuePort, QueueSpec
from penstock.queue.state.clock import BootClock, SharedClock, SteadyClock
from penstock.storage.local import LocalStorage

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
MICROS = 1_000_000
TAKER = Consumer("taker")


class Machine:
    """A machine whose clock can be set, and where time passes when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.set, self.passing = 1_700_000_000 * MICROS, ManualClock()
        monkeypatch.setattr(SystemClock, "now", lambda _: self.set + self.passing.at)
        monkeypatch.setattr(BootClock, "beat", lambda _: self.passing.beat())

    def jump(self, by: timedelta) -> None:
        self.set += round(by.total_seconds() * MICROS)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.fixture(params=["memory", "log", "another process"])
def queues(request: pytest.FixtureRequest, machine: Machine, tmp_path: Path) -> "Queues":
    return Queues(request.param, tmp_path)


class Queues:
    """One queue, or what a second process sees of it."""

    def __init__(self, kind: str, place: Path) -> None:
        self.kind, self.place = kind, place
        self.first = (MemoryQueues() if kind == "memory" else self._opened()).create(QueueSpec("q"))

    def _opened(self) -> LogQueues:
        return LogQueues(FileLog(LocalStorage(self.place / "log", sync=False)))

    def now(self) -> QueuePort:
        return self._opened().queue("q") if self.kind == "another process" else self.first


@pytest.mark.parametrize("by", [DAY, -DAY], ids=["a day on", "a day back"])
def test_a_clock_that_is_set_kills_no_message_and_delays_none(by: timedelta, queues: Queues, machine: Machine) -> None:
    queues.first.send([Message(b"an hour to live", ttl=HOUR), Message(b"in an hour", delay=HOUR)])
    machine.jump(by)
    assert [d.message.body for d in queues.now().peek(1)] == [b"an hour to live"]
    assert (queues.now().state().ready, queues.now().state().delayed) == (1, 1)
    queues.now().send([Message(b"an hour from now on", ttl=HOUR)])
    machine.passing.advance(3599)
    assert (queues.now().state().ready, queues.now().state().delayed) == (2, 1)
    machine.passing.advance(2)
    assert [d.message.body for d in queues.now().receive(TAKER, 10)] == [b"in an hour"]


def test_after_a_restart_of_the_machine_its_clock_decides(machine: Machine, tmp_path: Path) -> None:
    def opened() -> LogQueues:
        return LogQueues(FileLog(LocalStorage(tmp_path / "log", sync=False)))

    opened().create(QueueSpec("q")).send([Message(b"in an hour", delay=HOUR)])
    machine.passing.boot, machine.passing.at = "next", 1
    machine.jump(HOUR * 2)
    assert opened().queue("q").state().ready == 1
    assert [path.name for path in (tmp_path / "log" / "queues").glob("@clock-*")] == ["@clock-next"]


def test_a_moment_that_was_damaged_is_an_error_and_not_a_time(tmp_path: Path) -> None:
    storage, passing = LocalStorage(tmp_path, sync=False), ManualClock()
    assert SharedClock(storage, "queues", FixedClock(5_000_000), passing).now() == 5_000_000
    assert SharedClock(storage, "queues", FixedClock(9_000_000), passing).now() == 5_000_000
    path = tmp_path / "queues" / "@clock-boot"
    path.write_bytes(path.read_bytes().replace(b"4", b"5", 1))
    with pytest.raises(Damaged, match="@clock-boot"):
        SharedClock(storage, "queues", FixedClock(9_000_000), passing).now()


def test_the_steady_clock_begins_with_the_machines() -> None:
    before = time.time_ns() // 1000
    assert abs(SteadyClock().now() - before) < 60 * MICROS
