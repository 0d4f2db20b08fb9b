"""A sink that is away holds back only itself: the flow goes on, and the sink catches up, several epochs at once."""

import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from delivered import LIFE, TOPICS, Memory, decided, kept
from penstock.engine.run import waiting
from penstock.engine.run.epoch import apart
from penstock.engine.run.epoch.decision import Decisions
from penstock.engine.run.epoch.deliver import Deliverer, Target
from penstock.engine.run.epoch.sweep import Sweeper
from penstock.engine.run.waiting import WaitMessages
from penstock.errors import Mismatch, SinkError, SinkUnavailable
from penstock.sinks.port import Delivery, nothing
from waiting import until


class Store(Memory):
    """A sink that is away until it is let in, and remembers how it was given epochs."""

    def __init__(self, has: int = -1, here: bool = True) -> None:
        super().__init__(has, self._refuse)
        self.here = threading.Event()
        self.batches: list[list[int]] = []
        if here:
            self.here.set()

    def _refuse(self, epoch: int) -> None:
        if not self.here.is_set():
            raise SinkUnavailable("the store is away")

    def open(self, incarnation: str, generation: int) -> int:
        self._refuse(-1)
        return self.has

    def deliver_together(self, deliveries: Sequence[Delivery]) -> None:
        self._refuse(-1)
        self.batches.append([delivery.marker.epoch for delivery in deliveries])
        self.taken += deliveries
        self.has = self.taken[-1].marker.epoch


Start = Callable[..., Deliverer]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    monkeypatch.setattr(waiting, "FIRST", 0.001)
    made: list[Deliverer] = []

    def start(store: Memory, decisions: Decisions, *others: Memory, said: list[str] | None = None) -> Deliverer:
        messages = WaitMessages(said.append, nothing) if said is not None else None
        beside = [Target(f"other{n}", other, "sales") for n, other in enumerate(others)]
        out = Deliverer([Target("out", store, "sales", apart=True), *beside], decisions, True, messages)
        made.append(out)
        out.recover(LIFE, 1, decisions.last(), TOPICS)
        return out

    yield start
    for each in made:
        each.close()


def give(out: Deliverer, decisions: Decisions, *epochs: int) -> None:
    for epoch in epochs:
        decisions.publish(decided(epoch))
        out.give(decided(epoch), TOPICS, nothing)


def test_the_flow_and_other_sinks_go_on_while_one_is_away_and_it_catches_up_in_one_transaction(started: Start) -> None:
    store, other, decisions, said = Store(), Memory(), kept(), list[str]()
    out = started(store, decisions, other, said=said)
    give(out, decisions, 0)
    assert until(lambda: store.epochs == [0])
    store.here.clear()
    give(out, decisions, *range(1, 6))
    assert until(lambda: other.epochs == [0, 1, 2, 3, 4, 5])
    assert out.delivered() == 0
    assert not out.owes()
    store.here.set()
    out.caught_up(60)
    assert store.epochs == [0, 1, 2, 3, 4, 5]
    assert [1, 2, 3, 4, 5] in store.batches or len(store.batches) < 6, "each epoch was a transaction of its own"
    assert out.delivered() == 5
    assert "sink out waits since" in said[0]
    assert "the store is away" in said[0]
    assert said[-1].startswith("sink out goes on after")


def test_a_flow_starts_without_a_sink_that_is_away_and_gives_it_everything_that_is_kept(started: Start) -> None:
    store, decisions = Store(has=2, here=False), kept(2, 3, 4)
    out = started(store, decisions)
    assert out.delivered() == 1, "what is kept would be swept"
    give(out, decisions, 5)
    store.here.set()
    out.caught_up(60)
    assert store.epochs == [3, 4, 5]


def test_a_sink_that_lags_too_far_behind_lets_the_flow_wait(started: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "MOST_OWED", 3)
    store, decisions = Store(here=False), kept()
    out = started(store, decisions)
    give(out, decisions, 0, 1)
    out.settle()
    give(out, decisions, 2)
    with pytest.raises(SinkUnavailable, match="3 epochs behind"):
        out.settle()
    store.here.set()
    out.caught_up(60)
    out.settle()
    assert store.epochs == [0, 1, 2]


def test_a_store_that_went_back_gets_again_what_it_lost(started: Start) -> None:
    store, decisions = Store(), kept()
    out = started(store, decisions)
    give(out, decisions, 0, 1, 2, 3)
    out.caught_up(60)
    store.here.clear()
    give(out, decisions, 4)
    assert until(lambda: bool(out.lanes[0].away))  # type: ignore[union-attr]
    store.has = 1  # restored from a copy
    store.here.set()
    out.caught_up(60)
    assert store.epochs == [0, 1, 2, 3, 2, 3, 4]


def test_a_store_that_lost_more_than_is_kept_stops_the_flow(started: Start) -> None:
    store, decisions = Store(has=4), kept(3, 4)
    out = started(store, decisions)
    store.here.clear()
    give(out, decisions, 5)
    assert until(lambda: bool(out.lanes[0].away))  # type: ignore[union-attr]
    store.has = 0
    store.here.set()
    with pytest.raises(Mismatch, match="lacks the epochs 1 to 2"):
        out.caught_up(60)


def test_what_does_not_pass_stops_the_flow(started: Start) -> None:
    store, decisions = Store(), kept()
    out = started(store, decisions)

    def refuse(deliveries: Sequence[Delivery]) -> None:
        raise SinkError("there is no such table")

    store.deliver_together = refuse  # type: ignore[method-assign]
    give(out, decisions, 0)
    with pytest.raises(SinkError, match="no such table"):
        out.caught_up(60)
    with pytest.raises(SinkError, match="no such table"):
        out.settle()


def test_a_run_that_ends_says_what_a_sink_has_not_got(started: Start) -> None:
    store, decisions = Store(here=False), kept()
    out = started(store, decisions)
    give(out, decisions, 0, 1)
    assert out.finish() == ["epochs 0 to 1 of out will be delivered by the next start: the store is away"]
    with pytest.raises(SinkUnavailable, match="the store is away"):
        out.caught_up(0.01)


def test_what_is_kept_for_a_sink_that_is_away_is_what_was_staged_and_no_state() -> None:
    decisions = kept()
    sweeper = Sweeper(decisions.storage, decisions, keep=2)
    for epoch in range(6):
        files = (f"state/sales/{epoch}-a.arrow", "state/sales/0-shared.arrow")
        for path in (*files, f"staged/{epoch}-out.arrow"):
            if path not in decisions.storage.files:  # type: ignore[attr-defined]
                decisions.storage.publish(path, b"")
        decisions.publish(decided(epoch, files))
        sweeper.sweep(decided(epoch, files), delivered=-1)
    assert decisions.epochs() == [0, 1, 2, 3, 4, 5]
    assert decisions.storage.list("staged") == [f"{epoch}-out.arrow" for epoch in range(6)]
    assert decisions.storage.list("state/sales") == ["0-shared.arrow", "4-a.arrow", "5-a.arrow"]
    sweeper.sweep(decided(5, files), delivered=5)
    assert decisions.epochs() == [4, 5]
    assert decisions.storage.list("staged") == ["4-out.arrow", "5-out.arrow"]
    assert decisions.storage.list("state/sales") == ["0-shared.arrow", "4-a.arrow", "5-a.arrow"]
