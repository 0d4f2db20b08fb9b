"""5. Deliver and 6. Sweep: every sink gets every decided epoch once and in order, and what is needed is not swept."""

import threading
from collections.abc import Callable
from itertools import pairwise

import pytest

from delivered import LIFE, TOPICS, Memory, decided, kept
from penstock.core.time import NEVER
from penstock.engine.run.epoch.decision import Decisions
from penstock.engine.run.epoch.deliver import LIMIT, Deliverer, Target, delivery
from penstock.engine.run.epoch.sweep import Sweeper
from penstock.engine.state.runs import CARRIED
from penstock.errors import Mismatch, SinkError
from penstock.storage.memory import MemoryStorage


def deliverer(
    sink: Memory, decisions: Decisions, *, threaded: bool = False, lenient: bool = False, step: str | None = "sales"
) -> Deliverer:
    return Deliverer([Target("out", sink, step, lenient)], decisions, threaded)


def recovered(sink: Memory, decisions: Decisions, **how: bool) -> Deliverer:
    out = deliverer(sink, decisions, **how)
    out.recover(LIFE, 7, decisions.last(), TOPICS)
    return out


def test_a_delivery_says_what_the_sink_must_know() -> None:
    given = delivery(decided(4), Target("out", Memory(), "sales"), TOPICS, 9)
    assert (given.marker.incarnation, given.marker.generation, given.marker.epoch) == (LIFE, 9, 4)
    assert (given.files, given.frontier, given.inputs, given.clock) == (["staged/4-out.arrow"], 104, {"orders": {0: 5}}, 4)


def test_a_sink_of_another_name_gets_no_files_and_one_without_step_no_frontier() -> None:
    given = delivery(decided(4), Target("other", Memory(), None), TOPICS, 9)
    assert (given.files, given.frontier) == ([], NEVER)


@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.parametrize(("has", "gets"), [(-1, [0, 1, 2, 3]), (1, [2, 3]), (3, [])])
def test_recovery_gives_each_sink_what_it_lacks_in_order(has: int, gets: list[int], threaded: bool) -> None:
    sink = Memory(has)
    out = recovered(sink, kept(0, 1, 2, 3), threaded=threaded)
    assert sink.epochs == gets
    assert {d.marker.generation for d in sink.taken} <= {7}
    assert out.delivered() == 3
    out.close()
    assert sink.closed


def test_a_new_flow_has_nothing_to_recover() -> None:
    sink = Memory()
    recovered(sink, kept())
    assert sink.taken == []


def test_a_sink_that_is_ahead_of_the_decisions_is_refused() -> None:
    with pytest.raises(Mismatch, match="out has epoch 4, but the flow has decided only up to 3"):
        recovered(Memory(4), kept(2, 3))
    with pytest.raises(Mismatch, match="up to -1"):
        recovered(Memory(0), kept())


def test_a_sink_whose_epochs_were_swept_is_refused() -> None:
    with pytest.raises(Mismatch, match="out lacks the epochs 0 to 4"):
        recovered(Memory(-1), kept(5, 6))
    with pytest.raises(Mismatch, match="out lacks the epochs 3 to 4"):
        recovered(Memory(2), kept(5, 6))


def test_where_not_every_epoch_leaves_a_trace_an_older_one_is_enough_but_none_is_not() -> None:
    sink = Memory(2)
    recovered(sink, kept(5, 6), lenient=True)
    assert sink.epochs == [5, 6]
    with pytest.raises(Mismatch):
        recovered(Memory(-1), kept(5, 6), lenient=True)


def test_the_flows_own_topics_may_not_be_there_at_all() -> None:
    sink, decisions = Memory(-1), kept(5, 6)
    deliverer(sink, decisions, lenient=True, step=None).recover(LIFE, 7, decisions.last(), TOPICS)
    assert sink.epochs == [5, 6]


def test_an_epoch_is_given_to_every_sink_and_each_is_a_crash_point() -> None:
    sinks, points = [Memory(), Memory()], list[str]()
    out = Deliverer([Target(f"out{i}", s, "sales") for i, s in enumerate(sinks)], kept())
    out.give(decided(0), TOPICS, points.append)
    assert [s.epochs for s in sinks] == [[0], [0]]
    assert points == ["after_deliver:out0", "after_deliver:out1"]


def test_a_slow_sink_lags_behind_alone_and_only_up_to_the_limit() -> None:
    gate, quick = threading.Event(), Memory()
    slow = Memory(hook=lambda epoch: assert_waited(gate))
    out = Deliverer([Target("slow", slow, "sales"), Target("quick", quick, "sales")], kept(), threaded=True)
    for epoch in range(LIMIT):
        out.give(decided(epoch), TOPICS, lambda point: None)
    out.lanes[1].settle()
    assert (slow.epochs, quick.epochs) == ([], list(range(LIMIT)))
    assert out.delivered() == -1
    blocked = threading.Thread(target=out.give, args=(decided(LIMIT), TOPICS, lambda point: None))
    blocked.start()
    assert len(out.lanes[0].pending) <= LIMIT
    gate.set()
    blocked.join(10)
    out.settle()
    assert slow.epochs == quick.epochs == list(range(LIMIT + 1))
    assert out.delivered() == LIMIT
    out.close()


def assert_waited(gate: threading.Event) -> None:
    assert gate.wait(10)


def failing_at(wrong: int) -> Callable[[int], None]:
    failed = []

    def hook(epoch: int) -> None:
        if epoch == wrong and not failed:
            failed.append(epoch)
            raise SinkError("the disk is full")

    return hook


def test_what_fails_in_a_lane_comes_out_at_the_next_look() -> None:
    sink = Memory(hook=failing_at(1))
    out = deliverer(sink, kept(), threaded=True)
    for epoch in range(2):
        out.give(decided(epoch), TOPICS, lambda point: None)
    with pytest.raises(SinkError, match="disk is full"):
        out.settle()
    assert out.lanes[0].delivered == 0
    out.close()


@pytest.mark.parametrize("threaded", [False, True])
def test_no_epoch_follows_one_that_failed(threaded: bool) -> None:
    """The sink would take the later one for all that is missing, and the failed one would be lost for good (G9)."""
    sink = Memory(hook=failing_at(1))
    out = deliverer(sink, kept(), threaded=threaded)
    refused = 0
    for epoch in range(5):
        try:
            out.give(decided(epoch), TOPICS, lambda point: None)
        except SinkError:
            refused += 1
    if threaded:
        with pytest.raises(SinkError):
            out.settle()
    assert refused or threaded
    out.close()
    assert sink.epochs == [0]


# 6. Sweep


def swept(keep: int, epochs: int, delivered: Callable[[int], int]) -> tuple[MemoryStorage, Decisions]:
    """Runs epochs that each have a staged file, a state file of their own and one that all share."""
    storage = MemoryStorage({"incarnation": LIFE.encode()})
    decisions = Decisions(storage, "shop")
    sweeper = Sweeper(storage, decisions, keep)
    for epoch in range(epochs):
        decision = decided(epoch, (f"state/sales/{epoch}.arrow", "state/sales/shared.arrow"))
        for path in decision.files():
            storage.append(path).write(b"x")
        decisions.publish(decision)
        sweeper.sweep(decision, delivered(epoch))
    return storage, decisions


def test_the_last_decisions_and_all_they_name_stay() -> None:
    storage, decisions = swept(3, 10, lambda epoch: epoch)
    assert decisions.epochs() == [7, 8, 9]
    assert storage.list("staged") == [f"{n}-out.arrow" for n in (7, 8, 9)]
    assert storage.list("state/sales") == ["7.arrow", "8.arrow", "9.arrow", "shared.arrow"]


def test_nothing_goes_that_a_sink_does_not_have_yet() -> None:
    storage, decisions = swept(3, 10, lambda epoch: min(epoch, 4))
    assert decisions.epochs() == [5, 6, 7, 8, 9]
    assert len(storage.list("staged")) == 5


def test_files_of_attempts_that_were_never_decided_go_after_the_first_own_decision_only() -> None:
    lost = ("staged/0-out-lost.arrow", "state/sales/0-lost.arrow", "state/gone/0-lost.arrow")
    storage = MemoryStorage({"incarnation": LIFE.encode()} | dict.fromkeys(lost, b"x"))
    decisions = Decisions(storage, "shop")
    sweeper = Sweeper(storage, decisions)
    sweeper.load()
    assert storage.list("staged"), "an older driver that was paused might still decide and name them"
    first = decided(0, ("state/sales/0.arrow",))
    for path in first.files():
        storage.append(path).write(b"x")
    decisions.publish(first)
    sweeper.sweep(first, 0)
    assert storage.list("staged") == ["0-out.arrow"]
    assert storage.list("state/sales") == ["0.arrow"]
    assert storage.list("state/gone") == []


def test_a_sweeper_that_starts_anew_knows_what_older_decisions_name() -> None:
    storage, decisions = swept(3, 5, lambda epoch: epoch)
    sweeper = Sweeper(storage, decisions, 3)
    sweeper.load()
    last = decided(5)
    decisions.publish(last)
    sweeper.sweep(last, 5)
    assert decisions.epochs() == [3, 4, 5]
    assert storage.list("state/sales") == ["3.arrow", "4.arrow", "shared.arrow"]


def test_files_that_only_the_epoch_itself_needed_go_at_its_end() -> None:
    storage, decisions = swept(3, 1, lambda epoch: epoch)
    sweeper = Sweeper(storage, decisions, 3)
    for epoch in (1, 2):
        storage.append(f"staged/{epoch}-x.{CARRIED}").write(b"x")
        sweeper.sweep(decided(epoch), epoch)
        assert not [name for name in storage.list("staged") if name.endswith(CARRIED)]


def test_decisions_are_forgotten_from_the_oldest_on() -> None:
    """A crash in the middle of a sweep may not leave a hole."""
    storage, decisions = swept(3, 6, lambda epoch: min(epoch, 0))
    forgotten: list[int] = []
    decisions.forget = forgotten.append  # type: ignore[method-assign]
    sweeper = Sweeper(storage, decisions, 1)
    sweeper.load()
    sweeper.sweep(decided(6), 6)
    assert forgotten
    assert all(a < b for a, b in pairwise(forgotten))
