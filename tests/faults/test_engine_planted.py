"""Bugs planted in the engine, each of which must be caught: a checker that catches nothing proves nothing."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from laws.law import Broken, check
from laws.over_engine import OverEngine
from laws.test_engine_laws import a_case
from penstock import Flow, FlowTest, Tumbling, agg
from penstock.core.time import NEVER
from penstock.engine.run import driver
from penstock.engine.run.context import FlowContext
from penstock.engine.run.driver import Driver
from penstock.engine.run.epoch import decide
from penstock.engine.run.epoch.decision import Decision, Decisions
from penstock.engine.run.epoch.deliver import Lane, Target
from penstock.engine.run.epoch.open import EpochRequest, Opened
from penstock.engine.run.epoch.report import Report
from penstock.errors import LostRace, PenstockError, SinkError
from penstock.storage.local import LocalStorage
from unlocked import unlocked

pytestmark = pytest.mark.faults

ENOUGH = 150


def caught(name: str, how: OverEngine) -> bool:
    """Whether the law is broken, or the engine stops, within a bounded number of cases."""
    for seed in range(ENOUGH):
        try:
            check(a_case(name, seed), how)
        except (Broken, PenstockError):
            return True
    return False


# Bugs that the laws catch, with crashes at random points.


class Forgetful(Driver):
    """Goes on from a last decision that is not what was decided."""

    def epoch(self, request: EpochRequest | None = None) -> Report | None:
        if self.last:
            self.last = self.remembered(self.last)
        return super().epoch(request)

    def remembered(self, last: Decision) -> Decision:
        raise AssertionError("not reached")


def with_partitions(last: Decision, **changed: Any) -> Decision:
    sources = last.sources.items()
    return replace(
        last,
        sources={n: replace(s, partitions={p: replace(v, **changed) for p, v in s.partitions.items()}) for n, s in sources},
    )


class ForgetsItsMarks(Forgetful):
    """Forgets, with every epoch, which marks it put."""

    def remembered(self, last: Decision) -> Decision:
        return with_partitions(last, floor=NEVER)


class ForgetsTheTimeReadSoFar(Forgetful):
    def remembered(self, last: Decision) -> Decision:
        return with_partitions(last, time=NEVER)


class ForgetsFates(Forgetful):
    def remembered(self, last: Decision) -> Decision:
        return replace(last, fates={})


class ForgetsUntouchedBuckets(Forgetful):
    """Keeps what the last epoch has written, and nothing else."""

    def remembered(self, last: Decision) -> Decision:
        return replace(last, state=tuple(run for run in last.state if f"/{last.epoch}-" in run.file))


class StartsLatePartitionsWithoutAMark(Forgetful):
    def remembered(self, last: Decision) -> Decision:
        def unseen(name: str, seen: Any) -> bool:
            return bool(self.context.log.topic(self.program.sources[name].topic).ends().keys() - seen)

        return replace(
            last, sources={n: replace(s, used=NEVER) if unseen(n, s.partitions.keys()) else s for n, s in last.sources.items()}
        )


class UsesTheFrontierOfTheNextEpoch(Driver):
    """Without headers an epoch may only use what was known before it; here it uses what the next one may."""

    def open(self, request: EpochRequest) -> Opened:
        opened, program, log = super().open(request), self.program, self.context.log
        ends = {n: s.topic_id and log.topic(program.sources[n].topic).ends() for n, s in opened.sources.items()}
        known = {}
        for n, s in opened.sources.items():
            late = program.sources[n].lateness
            times = [end.time for end in ends[n].values()] if ends[n] and late is not None else []
            known[n] = max(s.used, min(times) - late) if times and min(times) > NEVER else s.used
        return replace(opened, frontiers=program.frontiers(known))


class Believed:
    """A sink that is taken to have every epoch that was decided before it is opened."""

    def __init__(self, sink: Any, decisions: Decisions) -> None:
        self.sink, self.decisions = sink, decisions

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sink, name)

    def open(self, incarnation: str, generation: int) -> int:
        self.sink.open(incarnation, generation)
        last = self.decisions.last()
        return last.epoch if last else -1


class DeliversNothingAgain(Driver):
    """Recovery trusts that what is decided was delivered."""

    def __init__(self, plan: Any, context: FlowContext) -> None:
        def targets(program: Any) -> list[Target]:
            return [replace(target, sink=Believed(target.sink, self.decisions)) for target in context.targets(program)]

        super().__init__(plan, replace(context, targets=targets))


BY_LAW: dict[str, OverEngine] = {
    "the engine's marks are not stored": OverEngine(driver=ForgetsItsMarks),
    "a partition's greatest time is forgotten": OverEngine(headers=False, driver=ForgetsTheTimeReadSoFar),
    "the frontier is that of the next epoch": OverEngine(headers=False, driver=UsesTheFrontierOfTheNextEpoch),
    "fates are not carried on": OverEngine(driver=ForgetsFates),
    "buckets without rows lose their state": OverEngine(driver=ForgetsUntouchedBuckets),
    "a partition first seen is not marked": OverEngine(driver=StartsLatePartitionsWithoutAMark),
    "decided, not delivered after a crash": OverEngine(driver=DeliversNothingAgain),
}


@pytest.mark.parametrize("bug", BY_LAW)
def test_a_bug_in_the_engine_breaks_a_law(bug: str) -> None:
    assert caught("tumbling", BY_LAW[bug]), bug


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


def driven_by(kind: type[Driver]) -> FlowTest:
    """The shop, run by this driver."""
    t = FlowTest(shop())
    t.drives = kind
    return t


def lost_attempt_story(point: str, kind: type[Driver] = Driver) -> int:
    """An attempt over some of the rows is lost; the next one reads them all."""
    with driven_by(kind) as t:
        t.send("orders", *rows(0), *rows(1))
        t.crash(point, cut=5)
        t.epoch()
        t.end()
        return total(t)


def test_state_of_an_undecided_epoch_that_is_reused_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lost_attempt_story("before_decide") == 380
    attempts: list[Decision] = []
    right = decide.decision_for

    def wrong(*given: Any) -> Decision:
        attempts.append(right(*given))
        return replace(attempts[-1], state=attempts[0].state) if len(attempts) == 2 else attempts[-1]

    monkeypatch.setattr(driver, "decision_for", wrong)
    assert lost_attempt_story("before_decide") != 380


class DeliversFirst(Driver):
    """Sinks get an epoch before it is decided."""

    def __init__(self, plan: Any, context: FlowContext) -> None:
        super().__init__(plan, context)
        self.decisions = DeliveredFirst(self)


class DeliveredFirst(Decisions):
    def __init__(self, driver: Driver) -> None:
        super().__init__(driver.context.storage, driver.plan.flow)
        self.driver = driver

    def publish(self, made: Decision) -> None:
        self.driver.deliverer.give(made, self.driver.sources, lambda point: None)
        self.driver.context.fail("delivered, not decided")
        super().publish(made)


def test_an_epoch_delivered_before_it_is_decided_is_noticed() -> None:
    """Sinks have the rows of an attempt that is lost, and computed otherwise the next time."""
    with pytest.raises(PenstockError, match="has decided only up to"):
        lost_attempt_story("delivered, not decided", DeliversFirst)


def failing_view_story(kind: type[Lane] = Lane) -> int:
    """The view, in a thread of its own, fails at one epoch while the next ones wait behind it."""
    with shop().test() as t:
        t.send("orders", *rows(0))
        t.epoch()
        context = replace(t.driver.context, threaded=True)
        t.stop()
        threaded, gate = Driver(t.plan, context), threading.Event()
        threaded.start()
        threaded.deliverer.lanes[:] = [kind(lane.target, threaded=True) for lane in threaded.deliverer.lanes]
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


def fail_once(threaded: Driver, gate: threading.Event) -> None:
    sink = next(lane.target.sink for lane in threaded.deliverer.lanes if lane.target.id == "view.sales")
    right, failed = sink.deliver, list[int]()

    def deliver(given: Any) -> None:
        assert gate.wait(10)
        if not failed:
            failed.append(given.marker.epoch)
            raise SinkError("the disk is full")
        right(given)

    sink.deliver = deliver  # type: ignore[method-assign]


class GoesOn(Lane):
    """Gives a sink the next epoch although one has failed."""

    failed = property(lambda self: None, lambda self, error: None)  # type: ignore[assignment]


def test_an_epoch_delivered_after_one_that_failed_loses_it() -> None:
    assert failing_view_story() == 4 * 190
    assert failing_view_story(GoesOn) < 4 * 190


class SweepsFirst(Driver):
    def start(self) -> None:
        for name in self.context.storage.list("staged"):
            self.context.storage.remove(f"staged/{name}")
        super().start()


def test_staged_files_swept_before_delivery_are_missed() -> None:
    """An epoch that is decided and not yet delivered must find its staged rows."""

    def story(kind: type[Driver]) -> int:
        with driven_by(kind) as t:
            t.send("orders", *rows(0), *rows(1))
            t.crash("after_decide")
            t.end()
            return total(t)

    assert story(Driver) == 380
    with pytest.raises(SinkError, match="cannot be read"):
        story(SweepsFirst)


def zombie_story(kind: type[Driver] = Driver) -> int:
    """A driver is paused with its epoch computed, and knows that nobody has replaced it; another starts; the first wakes up and
    decides."""
    with shop().test() as t:
        t.send("orders", *rows(0))
        t.epoch()
        sleeper, second = t.driver, unlocked(t.driver, kind)
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


class SweepsOrphansAtOnce(Driver):
    """Removes what no decision names before it has decided anything itself."""

    def start(self) -> None:
        super().start()
        storage, named = self.context.storage, set().union(*self.sweeper.files.values())
        for directory in ["staged", *(f"state/{step}" for step in storage.list("state"))]:
            for path in {f"{directory}/{name}" for name in storage.list(directory)} - named:
                storage.remove(path)


def test_orphans_swept_before_the_first_own_decision_take_the_files_of_a_zombie() -> None:
    assert zombie_story() == 380
    with pytest.raises(PenstockError, match=r"cannot be read|there is no staged"):
        zombie_story(SweepsOrphansAtOnce)


class Overwriting(LocalStorage):
    """A decision can be made twice."""

    def publish(self, path: str, data: bytes) -> None:
        if path.startswith("epochs/"):
            self.remove(path)
        super().publish(path, data)


class Overwrites(Driver):
    def __init__(self, plan: Any, context: FlowContext) -> None:
        assert isinstance(context.storage, LocalStorage)
        super().__init__(plan, replace(context, storage=Overwriting(context.storage.root, sync=False)))


def test_a_race_that_nobody_loses_is_noticed() -> None:
    """If a decision could be made twice, the second driver would not stop."""

    def story(kind: type[Driver]) -> None:
        with driven_by(kind) as t:
            t.send("orders", *rows(0))
            t.epoch()
            second = unlocked(t.driver)
            second.start()
            t.send("orders", *rows(1))
            second.epoch()
            t.driver.decisions.refuse_replaced = lambda generation: None  # type: ignore[method-assign]
            with pytest.raises(LostRace):
                t.driver.epoch()
            second.release()

    story(Driver)
    with pytest.raises((pytest.fail.Exception, PenstockError)) as noticed:
        story(Overwrites)
    assert not isinstance(noticed.value, LostRace)
