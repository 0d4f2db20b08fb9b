"""Bugs planted in the engine, each of which must be caught: a checker that catches nothing proves nothing."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from laws.law import Broken, check
from laws.over_engine import OverEngine
from laws.test_engine_laws import a_case
from penstock import Flow, FlowTest, Tumbling, agg
from penstock.core.time import NEVER
from penstock.engine.run import decide, decision, driver
from penstock.engine.run import open as opening
from penstock.engine.run.decision import Decision
from penstock.engine.run.deliver import Deliverer, Lane
from penstock.engine.run.sweep import Sweeper
from penstock.errors import LostRace, PenstockError, SinkError

pytestmark = pytest.mark.faults

ENOUGH = 150
Patch = pytest.MonkeyPatch


def caught(name: str, headers: bool) -> bool:
    """Whether the law is broken, or the engine stops, within a bounded number of cases."""
    for seed in range(ENOUGH):
        try:
            check(a_case(name, seed), OverEngine(headers))
        except (Broken, PenstockError):
            return True
    return False


# Bugs that the laws catch, with crashes at random points: (plan, headers, plant).


def marks_are_not_stored(patch: Patch) -> None:
    """The engine forgets, with every epoch, which marks it put."""
    right = opening.learned

    def wrong(*given: Any) -> Any:
        sources = right(*given)
        return {n: replace(s, partitions={p: replace(v, floor=NEVER) for p, v in s.partitions.items()}) for n, s in sources.items()}

    patch.setattr(decide, "learned", wrong)


def the_time_read_so_far_is_forgotten(patch: Patch) -> None:
    right = opening.learned

    def wrong(*given: Any) -> Any:
        sources = right(*given)
        return {n: replace(s, partitions={p: replace(v, time=NEVER) for p, v in s.partitions.items()}) for n, s in sources.items()}

    patch.setattr(decide, "learned", wrong)


def the_frontier_is_too_new(patch: Patch) -> None:
    """Without headers an epoch may only use what was known before it; here it uses what the next one may."""
    right = opening.open_epoch

    def wrong(program: Any, log: Any, last: Any, clock: int, wish: Any) -> Any:
        opened = right(program, log, last, clock, wish)
        ends = {n: s.topic_id and log.topic(program.sources[n].topic).ends() for n, s in opened.sources.items()}
        known = {}
        for n, s in opened.sources.items():
            late = program.sources[n].lateness
            times = [end.time for end in ends[n].values()] if ends[n] and late is not None else []
            known[n] = max(s.used, min(times) - late) if times and min(times) > NEVER else s.used
        return replace(opened, frontiers=program.frontiers(known))

    patch.setattr(driver, "open_epoch", wrong)


def fates_are_those_of_the_last_epoch(patch: Patch) -> None:
    right = decide.decision_for

    def wrong(context: Any, program: Any, marker: Any, opened: Any, last: Any, *ran: Any) -> Decision:
        return right(context, program, marker, opened, replace(last, fates={}) if last else None, *ran)

    patch.setattr(driver, "decision_for", wrong)


def untouched_buckets_are_forgotten(patch: Patch) -> None:
    right = decide.decision_for
    patch.setattr(driver, "decision_for", lambda *given: right(*given[:-2], (), given[-1]))


def a_late_partition_starts_without_a_mark(patch: Patch) -> None:
    right = opening._see

    def wrong(spec: Any, topic: Any, before: Any, *more: Any) -> Any:
        return right(spec, topic, replace(before, used=NEVER), *more)

    patch.setattr(opening, "_see", wrong)


def an_epoch_is_not_delivered_again(patch: Patch) -> None:
    """Recovery trusts that what is decided was delivered."""

    def wrong(self: Deliverer, incarnation: str, generation: int, last: Any, topics: Any) -> None:
        for lane in self.lanes:
            lane.call(lane.target.sink.open, incarnation, generation)
            lane.delivered = last.epoch if last else -1

    patch.setattr(Deliverer, "recover", wrong)


BY_LAW: dict[str, tuple[str, bool, Callable[[Patch], None]]] = {
    "the engine's marks are not stored": ("tumbling", True, marks_are_not_stored),
    "a partition's greatest time is forgotten": ("tumbling", False, the_time_read_so_far_is_forgotten),
    "the frontier is that of the next epoch": ("tumbling", False, the_frontier_is_too_new),
    "fates are not carried on": ("tumbling", True, fates_are_those_of_the_last_epoch),
    "buckets without rows lose their state": ("tumbling", True, untouched_buckets_are_forgotten),
    "a partition first seen is not marked": ("tumbling", True, a_late_partition_starts_without_a_mark),
    "decided, not delivered after a crash": ("tumbling", True, an_epoch_is_not_delivered_again),
}


@pytest.mark.parametrize("bug", BY_LAW)
def test_a_bug_in_the_engine_breaks_a_law(bug: str, monkeypatch: Patch) -> None:
    plan, headers, plant = BY_LAW[bug]
    plant(monkeypatch)
    assert caught(plan, headers), bug


@pytest.mark.parametrize("headers", [True, False])
def test_without_a_bug_no_law_is_broken(headers: bool) -> None:
    for seed in range(20):
        check(a_case("tumbling", seed), OverEngine(headers))


# Bugs that need a story of their own.


def shop() -> Flow:
    flow = Flow("shop")
    orders = flow.stream("orders", "user string, amount long, at timestamp", time="at", lateness="1 second")
    orders.window(Tumbling("1 minute"), by="user").agg(total=agg.sum("amount"), name="sales").view("sales")
    return flow


def rows(minute: int) -> Iterator[dict[str, Any]]:
    return ({"user": f"u{n % 3}", "amount": n, "at": f"2024-01-15T10:{minute:02d}:{n:02d}Z"} for n in range(20))


def total(t: FlowTest) -> int:
    return sum(row["total"] for row in t.rows("sales"))


def lost_attempt_story(point: str) -> int:
    """An attempt over some of the rows is lost; the next one reads them all."""
    with shop().test() as t:
        t.send("orders", *rows(0), *rows(1))
        t.crash(point, cut=5)
        t.epoch()
        t.end()
        return total(t)


def test_state_of_an_undecided_epoch_that_is_reused_is_noticed(monkeypatch: Patch) -> None:
    assert lost_attempt_story("before_decide") == 380
    attempts: list[Decision] = []
    right = decide.decision_for

    def wrong(*given: Any) -> Decision:
        attempts.append(right(*given))
        return replace(attempts[-1], state=attempts[0].state) if len(attempts) == 2 else attempts[-1]

    monkeypatch.setattr(driver, "decision_for", wrong)
    assert lost_attempt_story("before_decide") != 380


def test_an_epoch_delivered_before_it_is_decided_is_noticed(monkeypatch: Patch) -> None:
    """Sinks have the rows of an attempt that is lost, and computed otherwise the next time."""
    drivers: list[driver.Driver] = []
    recover, publish = driver.Driver._recover, decision.Decisions.publish

    def recovered(self: driver.Driver) -> None:
        recover(self)
        drivers.append(self)

    def wrong(self: Any, made: Decision) -> None:
        drivers[-1].deliverer.give(made, drivers[-1].sources, lambda point: None)
        drivers[-1].context.fail("delivered, not decided")
        publish(self, made)

    monkeypatch.setattr(driver.Driver, "_recover", recovered)
    monkeypatch.setattr(decision.Decisions, "publish", wrong)
    with pytest.raises(PenstockError, match="has decided only up to"):
        lost_attempt_story("delivered, not decided")


def failing_view_story() -> int:
    """The view, in a thread of its own, fails at one epoch while the next ones wait behind it."""
    with shop().test() as t:
        t.send("orders", *rows(0))
        t.epoch()
        context = replace(t.driver.context, threaded=True)
        t.driver.release()
        t._driver = None
        threaded, gate = driver.Driver(t.plan, context), threading.Event()
        threaded.start()
        fail_once(threaded, gate)
        for minute in (1, 2, 3):
            t.send("orders", *rows(minute))
            threaded.epoch()
        gate.set()
        with pytest.raises(SinkError, match="disk is full"):
            threaded.stop()
        threaded.release()
        t.end()
        return total(t)


def fail_once(threaded: driver.Driver, gate: threading.Event) -> None:
    sink = next(lane.target.sink for lane in threaded.deliverer.lanes if lane.target.id == "view.sales")
    right, failed = sink.deliver, list[int]()

    def deliver(given: Any) -> None:
        assert gate.wait(10)
        if not failed:
            failed.append(given.marker.epoch)
            raise SinkError("the disk is full")
        right(given)

    sink.deliver = deliver  # type: ignore[method-assign]


def test_an_epoch_delivered_after_one_that_failed_loses_it(monkeypatch: Patch) -> None:
    assert failing_view_story() == 4 * 190
    monkeypatch.setattr(Lane, "_deliver", lambda self, given: self.target.sink.deliver(given))
    assert failing_view_story() < 4 * 190


def test_staged_files_swept_before_delivery_are_missed(monkeypatch: Patch) -> None:
    """An epoch that is decided and not yet delivered must find its staged rows."""

    def story() -> int:
        with shop().test() as t:
            t.send("orders", *rows(0), *rows(1))
            t.crash("after_decide")
            t.end()
            return total(t)

    assert story() == 380
    right = driver.Driver._recover

    def sweep_first(self: driver.Driver) -> None:
        for name in self.context.storage.list("staged"):
            self.context.storage.remove(f"staged/{name}")
        right(self)

    monkeypatch.setattr(driver.Driver, "_recover", sweep_first)
    with pytest.raises(SinkError, match="cannot be read"):
        story()


def unlocked(decisions: Any) -> AbstractContextManager[None]:
    """As if the first driver were stopped, and its lock taken from it."""
    return nullcontext()


def zombie_story() -> int:
    """A driver is paused with its epoch computed, and knows that nobody has replaced it; another starts; the first wakes up and
    decides."""
    with shop().test() as t:
        t.send("orders", *rows(0))
        t.epoch()
        sleeper, second = t.driver, driver.Driver(t.plan, replace(t.driver.context, lock=unlocked))
        t.send("orders", *rows(1))

        def pause(point: str) -> None:
            if point == "before_decide":
                sleeper.context.fail = lambda point: None
                second.start()  # and no decision of its own yet

        sleeper.context.fail = pause
        sleeper.decisions.refuse_replaced = lambda generation: None  # type: ignore[method-assign]
        decided = sleeper.epoch()
        taken = second.epoch()
        assert decided
        assert taken
        assert taken.decision == decided.decision  # the sleeper's decision stands
        second.release()
        t.restart()
        t.end()
        return total(t)


def test_orphans_swept_before_the_first_own_decision_take_the_files_of_a_zombie(monkeypatch: Patch) -> None:
    assert zombie_story() == 380
    right = Sweeper.load

    def too_early(self: Sweeper) -> None:
        right(self)
        self._remove_orphans(2**62)

    monkeypatch.setattr(Sweeper, "load", too_early)
    with pytest.raises(PenstockError, match=r"cannot be read|there is no staged"):
        zombie_story()


def test_a_race_that_nobody_loses_is_noticed(monkeypatch: Patch) -> None:
    """If a decision could be made twice, the second driver would not stop."""

    def story() -> None:
        with shop().test() as t:
            t.send("orders", *rows(0))
            t.epoch()
            second = driver.Driver(t.plan, replace(t.driver.context, lock=unlocked))
            second.start()
            t.send("orders", *rows(1))
            second.epoch()
            t.driver.decisions.refuse_replaced = lambda generation: None  # type: ignore[method-assign]
            with pytest.raises(LostRace):
                t.driver.epoch()
            second.release()

    story()

    def overwrite(self: Any, made: Decision) -> None:
        path = Path(self.storage.root) / f"epochs/{made.epoch:012d}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(made.encode())

    monkeypatch.setattr(decision.Decisions, "publish", overwrite)
    with pytest.raises((pytest.fail.Exception, PenstockError)) as noticed:
        story()
    assert not isinstance(noticed.value, LostRace)
