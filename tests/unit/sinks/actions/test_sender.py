"""Senders and their receivers, in time that the test controls: nothing is lost, nothing waits for nothing, nobody is overrun."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from penstock.errors import SinkError
from penstock.log.memory import MemoryLog
from penstock.sinks.actions.call import Call, call
from penstock.sinks.actions.keys import idempotency_key
from penstock.sinks.actions.outbox.sender import WINDOW
from penstock.sinks.actions.outbox.sending import Sending
from penstock.sinks.actions.port import NotDone, Refused, Unavailable
from penstock.storage.memory import MemoryStorage
from penstock.testing.contracts.action import IDS, Bench
from penstock.testing.contracts.sink import Crash, CrashAt, staged

HOUR = 3_600.0


class Script:
    """Does what the test says, and remembers when it was called with what."""

    def __init__(self, says: Callable[[int, float], Exception | None] = lambda id, now: None) -> None:
        self.says, self.calls = says, list[tuple[float, int, str]]()
        self.bench: Bench

    def __call__(self, row: dict[str, Any], key: str) -> None:
        self.calls.append((self.bench.clock.now, row["id"], key))
        failure = self.says(row["id"], self.bench.clock.now)
        if failure:
            raise failure

    @property
    def done(self) -> list[int]:
        return [id for at, id, _ in self.calls if self.says(id, at) is None]


def bench_of(script: Script, sending: Sending | None = None, **given: Any) -> Bench:
    script.bench = Bench(_action(script), sending, **given)
    return script.bench


def _action(script: Script) -> Call:
    return call(script).action()


def started(script: Script, sending: Sending | None = None) -> Bench:
    bench = bench_of(script, sending)
    bench.deliver(bench.open())
    return bench


def test_a_receiver_that_is_away_for_an_hour_is_probed_and_then_gets_everything_once() -> None:
    script = Script(lambda id, now: Unavailable("down") if now < 1_000 + HOUR else None)
    bench = started(script)
    bench.send(HOUR - 1)
    tried = len(script.calls)
    assert tried < 8 + 5 + HOUR / 150  # backoff grows to five minutes, of which jitter takes up to a half
    bench.send(600)
    assert sorted(script.done) == IDS
    assert bench.dead() == []


def test_delivery_does_not_wait_for_a_receiver_that_is_away() -> None:
    bench = started(Script(lambda id, now: Unavailable("down")))
    assert bench.last == 3
    assert "contract.results.outcomes" in bench.log.topics()


def test_a_row_that_always_fails_is_a_dead_letter_after_its_tries_and_holds_nobody_back() -> None:
    script = Script(lambda id, now: NotDone("boom") if id == 3 else None)
    bench = started(script)
    bench.send(1)
    assert sorted(script.done) == [id for id in IDS if id != 3]
    bench.send(HOUR)
    times = [at for at, id, _ in script.calls if id == 3]
    assert len(times) == 9
    pauses = [round(b - a, 3) for a, b in itertools.pairwise(times)]
    assert pauses[:5] == [0.75, 1.5, 3.0, 6.0, 12.0]
    (letter,) = bench.dead()
    assert letter["reason"] == "boom; given up after 9 tries"
    assert (letter["step"], letter["topic"], letter["offset"]) == ("results", "contract.results.outbox", 2)
    assert letter["row"] == '{"id":3,"text":"c"}'


def test_a_row_that_is_refused_is_a_dead_letter_at_once() -> None:
    script = Script(lambda id, now: Refused("no such user") if id == 2 else None)
    bench = started(script)
    bench.send()
    assert [id for _, id, _ in script.calls].count(2) == 1
    assert [letter["reason"] for letter in bench.dead()] == ["no such user"]


def test_a_receiver_that_asks_for_a_pause_gets_it() -> None:
    busy = [Unavailable("busy", timedelta(seconds=120))]
    script = Script(lambda id, now: busy.pop() if busy else None)
    bench = started(script, Sending(at_once=1))
    bench.send(119)
    assert len(script.calls) == 1
    bench.send(2)
    assert len(script.calls) == 1 + len(IDS)


def test_a_pause_has_an_end_even_if_the_receiver_never_wants_to_be_called_again() -> None:
    busy = [Unavailable("busy", timedelta(days=1000))]
    script = Script(lambda id, now: busy.pop() if busy else None)
    bench = started(script)
    bench.send(HOUR)
    assert sorted(set(script.done)) == IDS


def test_the_rate_is_kept() -> None:
    script = Script()
    bench = started(script, Sending(rate=2.0))
    bench.send(0.9)
    assert len(script.calls) == 3
    bench.send(10)
    assert len(script.calls) == len(IDS)


def test_rows_that_agree_in_a_column_go_one_after_the_other() -> None:
    """Also where the first of them has to be tried again."""
    storage = MemoryStorage()
    storage.publish("0/0.arrow", staged([(1, "a"), (2, "b"), (3, "a"), (4, "b"), (5, "a")]))
    storage.publish("0/1.arrow", staged([]))
    slow = [NotDone("boom")] * 2
    script = Script(lambda id, now: slow.pop() if id == 1 and slow else None)
    bench = bench_of(script, Sending(in_order_by=("text",)), storage=storage)
    bench.deliver(bench.open(), until=0)
    bench.send(60)
    ids = [id for _, id, _ in script.calls]
    assert ids == [1, 2, 4, 1, 1, 3, 5]


def test_tries_are_counted_across_restarts() -> None:
    script = Script(lambda id, now: NotDone("boom") if id == 3 else None)
    bench = bench_of(script, Sending(tries=4))
    for generation in (1, 2):
        bench.resume(generation, seconds=2)
    assert [tries for _, fate, tries in bench.outcomes() if fate == "failed"] == [1, 2, 3]
    bench.resume(3, HOUR)
    assert [id for _, id, _ in script.calls].count(3) == 4
    assert len(bench.dead()) == 1
    bench.resume(4, HOUR)
    assert len(bench.dead()) == 1


@pytest.mark.parametrize("point", ["action.noted", "action.letters"])
def test_a_dead_letter_is_written_once_however_the_crash_falls(point: str) -> None:
    script = Script(lambda id, now: Refused("never"))
    bench = bench_of(script)
    sink = bench.open(1, CrashAt(point))
    bench.deliver(sink, until=1)
    with pytest.raises(Crash):
        bench.send()
    for generation in (2, 3):
        bench.resume(generation)
    assert sorted(letter["offset"] for letter in bench.dead()) == list(range(len(IDS)))
    assert len(script.calls) == len(IDS)


def test_a_start_reads_only_the_end_of_the_outcomes() -> None:
    script = Script(lambda id, now: NotDone("boom") if id == 7 else None)
    bench = bench_of(script, Sending(tries=1_000))
    bench.resume(1, HOUR)
    topic = bench.log.topic("contract.results.outcomes")
    last = [row for chunk in topic.read(0) for row in chunk.rows.to_pylist()][-1]
    assert last["settled"] == 6
    assert last["since"] >= 6  # the six that are done are not read again
    calls = len(script.calls)
    bench.resume(2)
    assert [id for _, id, _ in script.calls[calls:]] == [7]


def test_no_more_than_a_window_is_held_beyond_one_that_cannot_be_sent() -> None:
    storage = MemoryStorage()
    rows = [(id, "x") for id in range(2 * WINDOW)]
    storage.publish("0/0.arrow", staged(rows))
    storage.publish("0/1.arrow", staged([]))
    script = Script(lambda id, now: NotDone("boom") if id == 0 and now < 1_003 else None)
    bench = bench_of(script, Sending(), storage=storage)
    bench.deliver(bench.open(), until=0)
    bench.send(1)
    assert len(set(script.done)) == WINDOW - 1
    bench.send(60)
    assert sorted(script.done) == [id for id, _ in rows]


def test_actions_that_retention_removed_unsent_are_not_passed_over_in_silence() -> None:
    bench = started(Script(lambda id, now: Unavailable("down")))
    bench.send(1)
    assert isinstance(bench.log, MemoryLog)
    bench.log.alter(replace(bench.log.topic("contract.results.outbox").spec, retain_bytes=1))
    bench.log.clean("contract.results.outbox")
    assert bench.log.topic("contract.results.outbox").ends()[0].first > 0
    with pytest.raises(SinkError, match="lost actions that were not sent: offsets 0 to"):
        bench.open(2)


def test_keys_tell_flows_sinks_and_rows_apart() -> None:
    base = ("shop", "alerts", b"k", b"p")
    others = [
        ("shop2", *base[1:]),
        ("sho", "palerts", *base[2:]),
        (*base[:2], b"kp", b""),
        (*base[:2], None, b"p"),
        (*base[:3], b"q"),
    ]
    assert len({idempotency_key(*parts) for parts in (base, *others)}) == 6
