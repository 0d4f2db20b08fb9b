"""What every log must pass: readers that wait for records find them, whoever appends, and miss none."""

import threading
import time

import pytest

from penstock.log.port import Log, Topic
from penstock.log.watching import ReadTo, Watch, watch
from penstock.testing.contracts.log.samples import typed

PATIENCE = 30.0  # seconds: a reader that was not woken is found by the time it has waited


class WatchContract:
    """Part of `LogContract`."""

    @pytest.mark.parametrize("late", [False, True], ids=["before the wait", "while it waits"])
    def test_a_reader_that_waits_is_woken_by_every_append(self, log: Log, topic: Topic, late: bool) -> None:
        partition = topic.spec.partitions - 1
        waiting = watch(log, [topic.spec.name])
        for number in range(3):
            read_to = _read_to(topic)
            timer = threading.Timer(0.3 if late else 0.0, topic.append, [partition, typed([number])])
            timer.start()
            if not late:
                timer.join()
            _wait_for(waiting, topic, partition, read_to)
            timer.join()
        waiting.close()

    def test_a_wait_without_an_append_ends_in_time(self, log: Log, topic: Topic) -> None:
        topic.append(0, typed([1]))
        waiting, read_to = watch(log, [topic.spec.name]), _read_to(topic)
        waiting.wait(0.1, read_to)
        started = time.monotonic()
        waiting.wait(0.1, read_to)
        assert time.monotonic() - started < PATIENCE
        waiting.close()


def _read_to(topic: Topic) -> ReadTo:
    return {(topic.spec.name, number): end.next for number, end in topic.ends().items()}


def _wait_for(waiting: Watch, topic: Topic, partition: int, read_to: ReadTo) -> None:
    started = time.monotonic()
    while topic.ends()[partition].next <= read_to[topic.spec.name, partition]:
        waiting.wait(PATIENCE, read_to)
        assert time.monotonic() - started < PATIENCE, "nobody has woken the reader"
