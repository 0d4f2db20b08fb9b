"""A read that shows less than the log has said it holds is refused, wherever it is used: flows, groups, plain reads (G29)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from laws.blind import BlindLog
from penstock import Flow
from penstock.core.columns import KEY, VALUE
from penstock.core.time import FixedClock
from penstock.engine.run.context import FlowContext
from penstock.engine.run.driver import Driver
from penstock.engine.run.epoch.open import EpochRequest
from penstock.engine.run.outputs import targets
from penstock.errors import Unreachable
from penstock.flow.resolve import resolve
from penstock.flow.sql.analyzer import NoAnalyzer
from penstock.log.consumer import read
from penstock.log.groups.memory import MemoryGroups
from penstock.log.groups.reading import read_batch
from penstock.log.memory import MemoryLog
from penstock.log.port import Chunk, TopicSpec
from penstock.storage.local import LocalStorage

ROWS = 12
LEFT_OUT = {"the first": slice(0, 1), "one in the middle": slice(2, 3), "the last": slice(-1, None), "all": slice(None)}


class Short:
    """A topic whose next reads leave chunks out, without an error."""

    def __init__(self, topic: Any) -> None:
        self.topic, self.left_out = topic, list[slice]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.topic, name)

    def read(self, *args: Any, **more: Any) -> Iterator[Chunk]:
        chunks = list(self.topic.read(*args, **more))
        if self.left_out:
            del chunks[self.left_out.pop()]
        return iter(chunks)


class ShortLog:
    def __init__(self, log: Any) -> None:
        self.log, self.groups, self._short = log, MemoryGroups(), dict[str, Short]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)

    def topic(self, name: str) -> Any:
        found = self.log.topic(name)
        return self._short.setdefault(name, Short(found)) if name == "orders" else found


def raw(*values: int, key: bytes | None = None) -> pa.RecordBatch:
    columns = {VALUE: pa.array([b'{"n": %d}' % value for value in values], pa.binary())}
    return pa.record_batch(columns | ({KEY: pa.array([key] * len(values), pa.binary())} if key else {}))


@pytest.fixture(params=["with headers", "as Kafka"])
def log(request: pytest.FixtureRequest) -> ShortLog:
    clock = FixedClock(1_000_000)
    log = ShortLog(MemoryLog(clock) if request.param == "with headers" else BlindLog(clock))
    topic = log.create(TopicSpec("orders"))
    for n in range(0, ROWS, 3):
        topic.append(0, raw(n, n + 1, n + 2), mark=n * 1000)
    return log


@pytest.mark.parametrize("what", LEFT_OUT)
def test_an_epoch_whose_rows_came_in_part_is_not_decided_and_the_next_has_them(what: str, log: ShortLog, tmp_path: Path) -> None:
    flow, out = Flow("copy"), "copied"
    flow.stream("orders", "n long").to(out)
    storage = LocalStorage(str(tmp_path / "state"))
    context = FlowContext(log, storage, targets(log, storage, tmp_path / "views", lambda point: None), clock=FixedClock(2_000_000))  # type: ignore[arg-type]
    driver = Driver(resolve(flow, NoAnalyzer()), context)
    driver.start()
    log.topic("orders").left_out.append(LEFT_OUT[what])
    with pytest.raises(Unreachable, match="orders/0 gave nothing of offsets"):
        driver.epoch(EpochRequest())
    assert driver.last is None
    driver.epoch(EpochRequest())
    driver.stop()
    assert driver.last
    assert driver.last.fates["orders"]["in"] == ROWS
    account = driver.last.accounts["orders"]
    assert account["offsets"] == log.topic("orders").ends()[0].next == ROWS + account["marks"] + account["absent"]
    assert account["rows"] == ROWS
    assert sum(chunk.frame.count for chunk in log.topic(out).read(0)) == ROWS


@pytest.mark.parametrize("what", LEFT_OUT)
def test_a_group_commits_no_offset_of_which_it_was_told_nothing(what: str, log: ShortLog) -> None:
    topic = log.topic("orders")
    stop = topic.ends()[0].next
    topic.left_out.append(LEFT_OUT[what])
    with pytest.raises(Unreachable, match="neither their rows came nor word that they hold none"):
        read_batch(topic, 0, 0, stop, 100)
    batch = read_batch(topic, 0, 0, stop, 100)
    assert (batch.table.num_rows, batch.next) == (ROWS, stop)


@pytest.mark.parametrize("what", LEFT_OUT)
def test_a_plain_read_tells_what_is_missing(what: str, log: ShortLog) -> None:
    topic = log.topic("orders")
    topic.left_out.append(LEFT_OUT[what])
    with pytest.raises(Unreachable):
        list(read(topic))
    assert sum(table.num_rows for table in read(topic)) == ROWS
    assert sum(table.num_rows for table in read(topic, stop=1_000)) == ROWS  # more than there is may be asked for


def test_a_group_does_not_take_an_end_that_went_back_for_a_gap(log: ShortLog) -> None:
    stop = log.topic("orders").ends()[0].next
    with pytest.raises(Unreachable):
        read_batch(log.topic("orders"), 0, 0, stop + 5, 100)


def test_what_was_compacted_away_is_accounted_for() -> None:
    log = MemoryLog(FixedClock(1_000_000))
    topic = log.create(TopicSpec("orders", compact=True))
    for n in range(ROWS):
        topic.append(0, raw(n, key=b"k%d" % (n % 2)))
    topic.clean()
    assert sum(table.num_rows for table in read(topic)) == 2
    topic.append(0, raw(ROWS, key=b"k3"))
    short = Short(topic)
    short.left_out.append(slice(-1, None))
    with pytest.raises(Unreachable, match=f"offsets {ROWS} to {ROWS}"):
        list(read(short))  # type: ignore[arg-type]
