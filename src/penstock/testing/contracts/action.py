"""What every action must pass. Subclass `ActionContract`, say how your action and its receiver are made, run pytest.

    class TestMyAction(ActionContract):
        def receiver(self, directory):
            return MyReceiver(directory)       # a context manager

        def action(self, receiver):
            return MyAction(receiver.address)

        def received(self, receiver):
            return [(message.key, message.id) for message in receiver.messages]

Time is the suite's: nothing sleeps. The sender is crashed at each of its points and started again, as the engine does.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import Fenced
from penstock.log.memory import MemoryLog
from penstock.log.port import Log
from penstock.sinks.actions.outbox.pace import Times
from penstock.sinks.actions.outbox.sender import POINTS, Sender
from penstock.sinks.actions.outbox.sending import Sending
from penstock.sinks.actions.port import Action
from penstock.sinks.actions.sink import ActionSink
from penstock.sinks.port import SinkContext, nothing
from penstock.storage.port import Storage
from penstock.testing.contracts.sink import EPOCHS, EVERYTHING, SPEC, Crash, CrashAt, delivery, staged_epochs

Received = tuple[str, int]  # idempotency key, id of the row
IDS = sorted(id for id, _ in EVERYTHING)


class TestTimes:
    """A clock that moves when the test says so."""

    __test__ = False

    def __init__(self) -> None:
        self.now = 1_000.0
        self.times = Times(lambda: self.now, lambda: round(self.now * 1e6), lambda: 0.5)


class Inline(Executor):
    """Runs what it is given at once, in this thread; a crash goes through."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        function(*args, **named)
        return Future()


class ByHand:
    """Makes the steps of a sender when the test asks for them."""

    def __init__(self, sender_in: Callable[[Executor], Sender], sending: Sending, name: str) -> None:
        self.sender = sender_in(Inline())

    def told(self) -> None: ...

    def check(self) -> None: ...

    def stop(self) -> None: ...


class Bench:
    """One outbox and whoever sends from it, in time that the test controls."""

    def __init__(
        self, action: Action, sending: Sending | None = None, storage: Storage | None = None, log: Log | None = None
    ) -> None:
        self.action, self.sending, self.clock = action, sending or Sending(), TestTimes()
        self.log, self.storage = log or MemoryLog(), storage or staged_epochs(EPOCHS)
        self.runs: ByHand | None = None

    def open(self, generation: int = 1, fail: Callable[[str], None] = nothing) -> ActionSink:
        context = SinkContext(SPEC, self.log, self.storage, Path(), fail)
        sink = ActionSink(context, self.action, self.sending, self._start, self.clock.times)
        self.last = sink.open("life", generation)
        return sink

    def _start(self, sender_in: Callable[[Executor], Sender], sending: Sending, name: str) -> ByHand:
        self.runs = ByHand(sender_in, sending, name)
        return self.runs

    def deliver(self, sink: ActionSink, generation: int = 1, until: int = max(EPOCHS)) -> None:
        for epoch in range(self.last + 1, until + 1):
            sink.deliver(delivery(epoch, generation))
            self.last = epoch

    def send(self, seconds: float = 0.0) -> None:
        """Lets so much time pass, a step whenever there is something to do."""
        assert self.runs
        sender, end = self.runs.sender, self.clock.now + seconds
        while True:
            wait = sender.step()
            if not sender.changed.is_set() and self.clock.now + wait > end:
                self.clock.now = end
                return
            self.clock.now += 0.0 if sender.changed.is_set() else wait

    def resume(self, generation: int, seconds: float = 0.0) -> None:
        sink = self.open(generation)
        self.deliver(sink, generation)
        self.send(seconds)

    def outcomes(self) -> list[tuple[int, str, int]]:
        """Intent, outcome and tries of every row of the outcomes."""
        rows = [row for chunk in self.log.topic("contract.results.outcomes").read(0) for row in chunk.rows.to_pylist()]
        return [(row["intent"], row["outcome"], row["tries"]) for row in rows]

    def dead(self) -> list[dict[str, Any]]:
        if "contract.dead" not in self.log.topics():
            return []
        return [row for chunk in self.log.topic("contract.dead").read(0) for row in chunk.rows.to_pylist()]


MakeBench = Callable[..., Bench]


class ActionContract(ABC):
    """The tests. Each gets a fresh receiver."""

    @abstractmethod
    def receiver(self, directory: Path) -> AbstractContextManager[Any]: ...

    @abstractmethod
    def action(self, receiver: Any) -> Action:
        """An action that sends to this receiver."""

    @abstractmethod
    def received(self, receiver: Any) -> list[Received]:
        """All that came, doubles included."""

    @pytest.fixture
    def at(self, tmp_path: Path) -> Iterator[Any]:
        with self.receiver(tmp_path) as receiver:
            yield receiver

    @pytest.fixture
    def bench(self, at: Any) -> Iterator[MakeBench]:
        with ExitStack() as stack:

            def make(storage: Storage | None = None) -> Bench:
                action = self.action(at)
                stack.callback(action.close)
                return Bench(action, storage=storage)

            yield make

    def test_every_row_is_sent_once_when_nothing_goes_wrong(self, at: Any, bench: MakeBench) -> None:
        one = bench()
        one.deliver(one.open())
        one.send()
        assert sorted(id for _, id in self.received(at)) == IDS
        assert len({key for key, _ in self.received(at)}) == len(IDS)
        assert one.outcomes() == [(intent, "done", 1) for intent in range(len(IDS))]

    @pytest.mark.parametrize("point", POINTS[:3])
    @pytest.mark.parametrize("nth", [1, 3, 7])
    def test_after_a_crash_nothing_is_lost_and_doubles_have_the_same_key(
        self, at: Any, bench: MakeBench, point: str, nth: int
    ) -> None:
        one = bench()
        sink = one.open(1, CrashAt(point, nth))
        with suppress(Crash):  # outcomes are noted together: there may not be so many
            for epoch in EPOCHS:
                one.deliver(sink, until=epoch)
                one.send()
        one.resume(generation=2)
        self._once_by_key(at)

    def test_other_cuts_of_the_input_give_the_same_keys(self, at: Any, bench: MakeBench) -> None:
        """So does a flow that was started over."""
        for epochs in (EPOCHS, {0: EVERYTHING, 1: [], 2: [], 3: []}):
            bench(staged_epochs(epochs)).resume(generation=5)
        assert len(self.received(at)) == 2 * len(IDS)
        self._once_by_key(at)

    def test_a_sender_that_was_replaced_notes_nothing(self, at: Any, bench: MakeBench) -> None:
        one = bench()
        one.deliver(one.open(1), 1)
        old = one.runs
        one.resume(generation=2)
        noted = one.outcomes()
        assert old
        with pytest.raises(Fenced):
            old.sender.check_current()
        old.sender.step()
        with pytest.raises(Fenced):
            old.sender.step()
        assert one.outcomes() == noted
        self._once_by_key(at)

    def _once_by_key(self, at: Any) -> None:
        """At a receiver that honours keys every row is there once."""
        assert sorted(id for _, id in set(self.received(at))) == IDS
        assert len({key for key, _ in self.received(at)}) == len(IDS)
