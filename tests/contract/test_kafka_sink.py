"""Two drivers of a flow over a real Kafka broker, each in a process of its own: an epoch is there once, whoever wrote it (G10)."""

import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from contract import kafka_sink_child
from contract.kafka_sink_child import Driver
from penstock.errors import Fenced, Mismatch, SequenceGap
from penstock.log.open import open_log
from penstock.log.port import Sender
from penstock.sinks.topic import LOOKED
from penstock.testing.servers.kafka_broker import KafkaBroker

pytestmark = pytest.mark.timeout(120)


class Other:
    """A driver in another process."""

    def __init__(self, url: str, generation: int) -> None:
        command = [sys.executable, str(Path(kafka_sink_child.__file__)), url, str(generation)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.last = int(self._answer())

    def epoch(self, number: int, ids: list[int]) -> str:
        assert self.process.stdin
        self.process.stdin.write(orjson.dumps([number, ids]).decode() + "\n")
        return self._answer()

    def _answer(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.communicate()


class Others:
    def __init__(self, url: str) -> None:
        self.url, self.started = url, list[Other]()

    def start(self, generation: int) -> Other:
        self.started.append(Other(self.url, generation))
        return self.started[-1]

    def ids(self) -> list[int]:
        topic = open_log(url=self.url).topic("settled")
        return sorted(id for p in topic.ends() for chunk in topic.read(p) for id in chunk.rows["id"].to_pylist())


@pytest.fixture
def others(kafka_broker: KafkaBroker) -> Iterator[Others]:
    others = Others(f"{kafka_broker.url}?prefix=s{uuid.uuid4().hex[:12]}.")
    yield others
    for other in others.started:
        other.end()


@pytest.mark.parametrize("written", [0, 1])
def test_a_frame_of_an_older_driver_that_comes_between_the_look_and_the_fence_of_a_newer_one_is_there_once(
    written: int, others: Others
) -> None:
    old = others.start(1)
    for epoch in range(written):
        assert old.epoch(epoch, [1, 2, 3]) == "done"
    looked = list[str]()

    def between(point: str) -> None:
        if point == LOOKED:
            looked.append(point)
            if len(looked) == 1:
                assert old.epoch(written, [4, 5, 6, 7, 8]) == "done"

    new = Driver(others.url, 2, between)
    assert len(looked) == 2, "the first fence was refused, the second held"
    assert new.last == written
    new.epoch(written, [4, 5, 6, 7, 8])
    new.epoch(written + 1, [9])
    assert "later start" in old.epoch(written + 1, [9])
    assert others.ids() == [*([1, 2, 3] if written else []), 4, 5, 6, 7, 8, 9]


def test_what_a_process_remembers_of_a_sender_does_not_outlive_a_fence_by_another(others: Others) -> None:
    old = Driver(others.url, 1)
    old.epoch(0, [1, 2, 3])
    topic = open_log(url=others.url).topic("settled")
    last = max(sender.sequence for p in topic.ends() for sender in topic.senders(p).values())
    new = others.start(2)
    assert new.last == 0
    assert new.epoch(1, [4, 5]) == "done"
    behind = Sender("shop/settled/life", 3, last, gaps=True)
    empty = next(iter(topic.read(1))).rows.slice(0, 0)
    with pytest.raises(SequenceGap, match=f"begins epoch 3 at {last}, but its last is {last + 1}"):
        topic.append(1, empty.select(["id"]), sender=behind)
    with pytest.raises(Fenced, match="its epoch is 1, the log has seen 2"):
        topic.append(1, empty.select(["id"]), sender=behind._replace(epoch=1, sequence=last + 1))
    with pytest.raises(Mismatch, match="later start"):
        old.epoch(1, [4, 5])
    assert new.epoch(2, [6]) == "done"
    assert others.ids() == [1, 2, 3, 4, 5, 6]
