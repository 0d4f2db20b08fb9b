"""G22: every message that a queue took is acknowledged once or stands in the dead letters, whoever is killed."""

import random
from collections import defaultdict
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from amount import cases
from faults.queue_crew import Crew, crew
from faults.seeds import SEED
from penstock.log.file.log import FileLog
from penstock.queue.on_log.queue import LogQueue
from penstock.queue.on_log.queues import LogQueues
from penstock.queue.port import Consumer, Message, QueueSpec, Settlement
from penstock.storage.local import LocalStorage
from waiting import until

pytestmark = pytest.mark.faults
LEASE = 0.4


def sent(queue: LogQueue, first: int, count: int) -> list[str]:
    ids = [f"m{n}" for n in range(first, first + count)]
    queue.send([Message(id.encode(), id) for id in ids])
    return ids


def storm(home: Path, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    queues = LogQueues(FileLog(LocalStorage(home, sync=False)))
    queue = queues.create(QueueSpec("q", lease=timedelta(seconds=LEASE), tries=4))
    ids = sent(queue, 0, 400)
    with crew(home, prefetch=4) as found:
        for _ in range(4):
            found.start()

        def killed_enough() -> bool:
            if len(found.said("got")) > 1.5 * found.killed and len(found.alive) > 1:
                found.kill(rng.choice(list(found.alive)))
                found.start()
            if queue.state().ready < 100:
                ids.extend(sent(queue, len(ids), 200))
            return found.killed >= kills

        until(killed_enough, 10 + kills)
    assert found.killed >= kills
    check(found, set(ids), queues)


def check(found: Crew, ids: set[str], queues: LogQueues) -> None:
    acked = [id for _, _, id in found.said("ack")]
    assert len(acked) == len(set(acked)), "acknowledged twice"
    tried = {id for _, _, id, _ in found.said("try")}
    left, dead = drained(queues.queue("q")), drained(queues.queue("q.dead"))
    there = [*left, *dead]
    assert len(there) == len(set(there)), "there twice"
    assert not set(acked) & set(there), "acknowledged, and there"
    unsaid = ids - set(acked) - set(there)  # acknowledged by one that was killed before it could say so
    assert unsaid <= tried, f"gone: {sorted(unsaid - tried)}"
    assert len(unsaid) <= found.killed
    assert acked
    no_two_hold_one(found)


def no_two_hold_one(found: Crew) -> None:
    """Whoever got a message after another got it after that one's lease, or after it began to acknowledge."""
    holds = defaultdict(list)
    for _, receipt, id, _, began, ended in found.said("got"):
        holds[id].append((int(receipt.split("-")[1]), int(began), int(ended)))
    given_up = {receipt: int(at) for _, receipt, _, at in found.said("try")}
    places = {id: receipt.split("-")[0] for _, receipt, id, *_ in found.said("got")}
    again = 0
    for id, times in holds.items():
        for (token, began, _), (_, _, ended) in pairwise(sorted(times)):
            free = min(began + LEASE * 1_000_000, given_up.get(f"{places[id]}-{token}", 1 << 62))
            assert ended >= free, f"{id} was lent while it was held"
            again += 1
    assert again, "nothing was ever lent again: the kills showed nothing"


def drained(queue: LogQueue) -> list[str]:
    """All that is in it; what those that were killed held comes back when its lease has run out."""
    found: list[str] = []

    def empty() -> bool:
        got = queue.receive(Consumer("drain", prefetch=10_000, lease=timedelta(minutes=5)), 500)
        found.extend(d.message.id for d in got)
        assert not queue.settle([Settlement(d.receipt, "ack") for d in got])
        return not got and not queue.state().lent

    assert until(empty, 30), "the queue does not become empty"
    return found


def test_every_message_is_acknowledged_once_through_three_hundred_kills(tmp_path: Path) -> None:
    storm(tmp_path, 300, SEED)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(cases(3)))
def test_every_message_is_acknowledged_once_through_thousands_of_kills(tmp_path: Path, seed: int) -> None:
    storm(tmp_path, 1_000, SEED + 100 + seed)
