"""Step 5, Deliver: each sink takes every decided epoch whole, once, in order."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from penstock.core.time import NEVER
from penstock.engine.run.epoch.apart import ApartLane, Start, owed_from
from penstock.engine.run.epoch.decision import Decision, Decisions
from penstock.engine.run.epoch.sink_status import Tell, tell_nobody
from penstock.engine.run.waiting import WaitMessages
from penstock.errors import Mismatch, Passing, SinkError, SinkLost
from penstock.sinks.port import Delivery, Marker, Sink

LIMIT = 8  # epochs that a slow sink may lag behind before the flow waits for it


@dataclass
class Target:
    """A sink, and what it needs to know of a decision."""

    id: str
    sink: Sink
    input: str | None  # the step whose frontier is the mark behind its rows; None: no marks
    lenient: bool = False  # its last epoch may be older than it is: not every epoch leaves a trace there
    apart: bool = False  # the flow goes on without it while it is away
    store: bool = False  # it can be filled anew from the log


class Lane:
    """One sink with its queue: a thread of its own, or none. What a sink could not take is owed to it, and all behind it."""

    def __init__(self, target: Target, threaded: bool, tell: Tell = tell_nobody) -> None:
        self.target, self.tell = target, tell
        self.delivered = -1
        self.closed = False
        self.failed: BaseException | None = None
        self.owed: deque[Delivery] = deque()
        self.pending: deque[tuple[int, Future[None]]] = deque()
        self.thread = ThreadPoolExecutor(1, thread_name_prefix=f"deliver-{target.id}") if threaded else None

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return self.thread.submit(function, *args).result() if self.thread else function(*args)

    def open(self, start: Start) -> None:
        self.start = start
        self.delivered = self.call(self.target.sink.open, start.incarnation, start.generation)
        start.check(self.delivered)

    def give(self, delivery: Delivery) -> None:
        self.owed.append(delivery)
        self._send(delivery)

    def _send(self, delivery: Delivery) -> None:
        if not self.thread:
            self._deliver(delivery)
            self.delivered = delivery.marker.epoch
            return
        self.settle(LIMIT - 1)
        self.pending.append((delivery.marker.epoch, self.thread.submit(self._deliver, delivery)))

    def _deliver(self, delivery: Delivery) -> None:
        """After an epoch that failed none follows: the sink would take it for the whole of what came before."""
        if self.failed:
            raise SinkError(f"{self.target.id} gets no epoch {delivery.marker.epoch}: an earlier one failed", hint="run again")
        try:
            self.target.sink.deliver(delivery)
            self.owed.popleft()
        except BaseException as error:
            self.failed = error
            self.tell(self.target.id, delivery.marker.epoch - 1, len(self.owed), error)
            raise
        self.tell(self.target.id, delivery.marker.epoch, len(self.owed), None)

    def again(self) -> None:
        """What the sink could not take is given once more, in order, to a sink opened anew; what it has already is skipped."""
        if not self.failed:
            return
        for _, future in self.pending:
            future.exception()  # they came behind it, and were refused
        self.pending.clear()
        has = self.call(self.target.sink.open, self.start.incarnation, self.start.generation)
        self.owed = deque(owed_from(has, self.delivered, self.owed, self.start, self.target.lenient))
        self.delivered = has
        self.failed = None
        for delivery in [*self.owed]:
            self._send(delivery)
            self.settle()

    def settle(self, allowed: int = 0) -> None:
        """Waits until at most `allowed` epochs are on their way; what failed is raised."""
        while self.pending and (len(self.pending) > allowed or self.pending[0][1].done()):
            epoch, future = self.pending.popleft()
            future.result()
            self.delivered = epoch
        if self.failed:
            raise self.failed

    def caught_up(self, patience: float) -> None:
        self.settle()

    def finish(self) -> str:
        """Waits for what is on its way. A line on what the sink could not take, if that may pass; else it is raised."""
        try:
            self.settle()
            return ""
        except Exception:
            if not isinstance(self.failed, Passing):
                raise
        first, last = self.owed[0].marker.epoch, self.owed[-1].marker.epoch
        epochs = f"epoch {first}" if first == last else f"epochs {first} to {last}"
        return f"{epochs} of {self.target.id} will be delivered by the next start: {self.failed.what}"

    def close(self) -> None:
        """Closes the sink; it may have been closed already."""
        if self.closed:
            return
        self.closed = True
        self.call(self.target.sink.close)
        if self.thread:
            self.thread.shutdown()


@dataclass
class Deliverer:
    targets: Iterable[Target]
    decisions: Decisions
    threaded: bool = False
    messages: WaitMessages | None = None  # where it is said that a sink is away
    tell: Tell = tell_nobody
    lanes: list[Lane | ApartLane] = field(init=False)

    def __post_init__(self) -> None:
        self.lanes = [self._lane(target) for target in self.targets]

    def _lane(self, target: Target) -> Lane | ApartLane:
        return (
            ApartLane(target, self.messages, self.tell)
            if target.apart and self.threaded
            else Lane(target, self.threaded, self.tell)
        )

    def recover(self, incarnation: str, generation: int, last: Decision | None, topics: Mapping[str, str]) -> None:
        """Opens every sink and gives it what is decided and not yet there."""
        kept = self.decisions.epochs()
        oldest = kept[0] if kept else 0
        for lane in self.lanes:
            check, again = partial(self._check, lane.target, last), partial(self._again, lane.target, topics, generation)
            lane.open(Start(incarnation, generation, oldest, check, again))
        for epoch in kept:
            decision = None
            for lane in self.lanes:
                if epoch > lane.delivered:
                    decision = decision or self.decisions.read(epoch)
                    lane.give(delivery(decision, lane.target, topics, generation))
        self.settle()

    def _again(self, target: Target, topics: Mapping[str, str], generation: int, after: int, until: int) -> list[Delivery]:
        """What is kept of the epochs behind one of them, up to another."""
        self._check(target, None, after)
        epochs = [epoch for epoch in self.decisions.epochs() if after < epoch <= until]
        return [delivery(self.decisions.read(epoch), target, topics, generation) for epoch in epochs]

    def _check(self, target: Target, last: Decision | None, delivered: int) -> None:
        kept = self.decisions.epochs()
        oldest, newest = kept[0] if kept else 0, max(last.epoch if last else -1, kept[-1] if kept else -1)
        if delivered > newest:
            raise Mismatch(
                f"{target.id} has epoch {delivered}, but the flow has decided only up to {newest}",
                hint="the flow's directory is older than its output: restore the newer one, or start both over: "
                f"penstock flow reset {self.decisions.flow}",
            )
        missing = delivered + 1 < oldest and not (target.lenient and delivered >= 0)
        if missing and not (target.lenient and target.input is None):
            what = f"{target.id} lacks the epochs {delivered + 1} to {oldest - 1}, which are no longer kept"
            if target.store:
                hint = f"fill it from the log: penstock sink rebuild FLOW.py {target.id}; or restore it from a copy"
                raise (SinkLost if target.apart and self.threaded else Mismatch)(what, hint=hint)
            start_over = f"penstock flow reset {self.decisions.flow}"
            raise Mismatch(what, hint=f"restore it from a copy, or start the flow over: {start_over}")

    def give(
        self, decision: Decision, topics: Mapping[str, str], fail: Callable[[str], None], generation: int | None = None
    ) -> None:
        """Every sink gets the epoch, also where another one cannot take it now; that is raised then. generation: of the driver that
        gives, where that is not the one that decided."""
        unable: Passing | None = None
        for lane in self.lanes:
            try:
                lane.give(delivery(decision, lane.target, topics, generation or decision.generation))
            except Passing as error:
                unable = unable or error
            fail(f"after_deliver:{lane.target.id}")
        if unable:
            raise unable

    def owes(self) -> bool:
        """Whether a sink could not take an epoch."""
        return any(lane.failed for lane in self.lanes)

    def finish(self) -> list[str]:
        """Waits for what is on its way; a line for each sink that is away."""
        return [line for line in [lane.finish() for lane in self.lanes] if line]

    def again(self) -> None:
        """Sinks that could not take an epoch get it now, before any other; raises what still keeps them from it."""
        for lane in self.lanes:
            lane.again()

    def settle(self, allowed: int = 0) -> None:
        for lane in self.lanes:
            lane.settle(allowed)

    def caught_up(self, patience: float) -> None:
        """Waits until every sink has everything; raises what keeps one away, once that has lasted for so many seconds."""
        for lane in self.lanes:
            lane.caught_up(patience)

    def delivered(self) -> int:
        """The last epoch that every sink has."""
        for lane in self.lanes:
            lane.settle(LIMIT)
        return min((lane.delivered for lane in self.lanes), default=2**62)

    def close(self) -> None:
        for lane in self.lanes:
            lane.close()


def delivery(decision: Decision, target: Target, topics: Mapping[str, str], generation: int) -> Delivery:
    inputs: dict[str, dict[int, int]] = {}
    for source, state in decision.sources.items():
        read = inputs.setdefault(topics[source], {})
        for number, p in state.partitions.items():
            read[number] = min(p.next, read.get(number, p.next))
    return Delivery(
        marker=Marker(decision.incarnation, generation, decision.epoch),
        files=[s.file for s in decision.staged if s.sink == target.id],
        frontier=decision.frontiers[target.input] if target.input else NEVER,
        inputs=inputs,
        clock=decision.clock,
    )
