"""Topics are cleaned while flows run, with what the flows still have to read held back; what went unread is told."""

from dataclasses import replace
from datetime import timedelta

import pyarrow as pa

from penstock.core.columns import VALUE
from penstock.core.time import FixedClock, micros
from penstock.engine.run.tidying import tidied
from penstock.log.groups.port import Source
from penstock.log.memory import MemoryLog
from penstock.log.port import TopicSpec
from waiting import until

HOUR = timedelta(hours=1)


def old_rows(hold: timedelta) -> tuple[MemoryLog, FixedClock]:
    """A topic whose records are past their hour, and a flow that has read none of them."""
    clock = FixedClock(micros(timedelta(days=20_000)))
    log = MemoryLog(clock)
    topic = log.create(replace(TopicSpec("orders", retain=HOUR), hold=hold))
    for n in range(3):
        topic.append(0, pa.record_batch({VALUE: pa.array([b"%d" % n])}))
    log.groups().put("flow.shop", Source("orders", topic.id, 1), {0: 0})
    clock.set(clock.now() + micros(3 * HOUR))
    return log, clock


def test_what_a_flow_has_not_read_is_held_back_and_goes_once_it_has() -> None:
    log, _ = old_rows(timedelta(days=7))
    said: list[str] = []
    with tidied(log, said.append, every=0.01):
        log.groups().put("flow.shop", Source("orders", log.topic("orders").id, 1), {0: 2})
        assert until(lambda: log.topic("orders").ends()[0].first > 0, 10.0)
    assert log.topic("orders").ends()[0].first == 2
    assert said == []


def test_what_is_removed_unread_is_told_with_the_flow_that_has_not_read_it() -> None:
    log, _ = old_rows(timedelta(minutes=1))
    said: list[str] = []
    with tidied(log, said.append, every=0.01):
        assert until(lambda: said, 10.0)
    assert "were removed although flow.shop has not read them" in said[0]


def test_a_log_that_its_broker_cleans_is_left_alone() -> None:
    class Elsewhere:
        """Not cleanable."""

    with tidied(Elsewhere(), lambda text: None, every=0.0):  # type: ignore[arg-type]
        pass
