"""Queues in memory and on the log, behind the same door; their leases run out when the test says so."""

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Queue
from penstock.log.file.log import FileLog
from penstock.log.groups.leases import ManualClock
from penstock.queue.memory import MemoryQueues
from penstock.queue.on_log.queues import LogQueues
from penstock.queue.options import spec_of
from penstock.queue.port import QueuesPort
from penstock.storage.local import LocalStorage

Make = Callable[..., Queue]


@pytest.fixture
def leases() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory", "log"])
def queues(request: pytest.FixtureRequest, tmp_path: Path, leases: ManualClock) -> QueuesPort:
    if request.param == "memory":
        return MemoryQueues(leases=leases)
    return LogQueues(FileLog(LocalStorage(tmp_path / "log")), leases=leases)


@pytest.fixture
def make(queues: QueuesPort) -> Make:
    """Makes a queue as `Queue.create` does."""
    return lambda name, **settings: Queue(queues.create(spec_of(name, settings)), queues)


@pytest.fixture
def emails(make: Make) -> Queue:
    return make("emails")
