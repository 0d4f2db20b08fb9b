"""Actions of a flow whose log is a real Kafka broker: outbox, outcomes and dead letters stand there."""

import uuid

import pytest

from penstock.errors import Fenced
from penstock.log.open import open_log
from penstock.log.port import Log
from penstock.sinks.actions.call import call
from penstock.sinks.actions.port import Refused
from penstock.testing.contracts.action import IDS, Bench
from penstock.testing.contracts.sink import Crash, CrashAt
from penstock.testing.servers.kafka_broker import KafkaBroker

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def log(kafka_broker: KafkaBroker) -> Log:
    return open_log(url=f"{kafka_broker.url}?prefix=a{uuid.uuid4().hex[:12]}.")


class Receiving:
    """Takes every row but those that it refuses."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def __call__(self, row: dict[str, int], key: str) -> None:
        self.calls.append((key, row["id"]))
        if row["id"] == 3:
            raise Refused("never")


@pytest.mark.parametrize("point", ["action.done", "action.noted", "action.letters"])
def test_after_a_crash_nothing_is_lost_and_letters_are_written_once(log: Log, point: str) -> None:
    receiving = Receiving()
    bench = Bench(call(receiving).action(), log=log)
    bench.deliver(bench.open(1, CrashAt(point)))
    with pytest.raises(Crash):
        bench.send()
    for generation in (2, 3):
        bench.resume(generation)
    assert sorted(id for _, id in set(receiving.calls)) == IDS
    assert [letter["offset"] is not None and letter["reason"] for letter in bench.dead()] == ["never"]
    assert sorted(fate for _, fate, _ in bench.outcomes()) == ["dead", *["done"] * (len(IDS) - 1)]


def test_a_sender_that_was_replaced_is_refused_by_the_broker(log: Log) -> None:
    receiving = Receiving()
    bench = Bench(call(receiving).action(), log=log)
    bench.deliver(bench.open(1))
    old = bench.runs
    assert old
    bench.resume(generation=2)
    noted = bench.outcomes()
    old.sender.step()
    with pytest.raises(Fenced):
        old.sender.step()
    assert bench.outcomes() == noted
