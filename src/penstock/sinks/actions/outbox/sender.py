"""Acts on the intents of an outbox and notes what became of each: at least once, with the same key (G38)."""

import threading
from collections.abc import Callable
from concurrent.futures import Executor
from queue import Empty, SimpleQueue
from typing import NamedTuple

from penstock.errors import Fenced
from penstock.sinks.actions.outbox.agenda import Agenda, Planned
from penstock.sinks.actions.outbox.intents import Intents
from penstock.sinks.actions.outbox.letters import DeadLetters
from penstock.sinks.actions.outbox.outcomes import Fate, Outcome, Outcomes
from penstock.sinks.actions.outbox.pace import CircuitBreaker, Times, TokenBucket, pause
from penstock.sinks.actions.outbox.sending import Sending
from penstock.sinks.actions.port import Action, NotDone, Refused, Unavailable
from penstock.sinks.port import nothing

POINTS = ("action.begun", "action.done", "action.noted", "action.letters")
WINDOW = 2_000  # intents that are held beyond the oldest one without a final outcome
LOOK = 1.0  # seconds between two looks at an outbox to which nobody here has added: a redrive does so from outside


class Outbox(NamedTuple):
    """What a sender reads and writes."""

    intents: Intents
    outcomes: Outcomes
    letters: DeadLetters


class Finished(NamedTuple):
    """One try."""

    planned: Planned
    failure: BaseException | None


class Sender:
    """`step` does what is to be done now and never waits: calls run in the pool, one thread makes the steps.

    `fail` is called with each of POINTS as it is passed: before and behind every call, behind every note and the dead letters."""

    def __init__(
        self,
        action: Action,
        outbox: Outbox,
        sending: Sending,
        pool: Executor,
        times: Times | None = None,
        fail: Callable[[str], None] = nothing,
    ) -> None:
        self._action, self._sending, self._pool, self._fail = action, sending, pool, fail
        self._intents, self._outcomes, self._letters = outbox
        self._times = times or Times()
        self._agenda, self._under_way = Agenda(), 0
        self._bucket = TokenBucket(sending.rate, self._times.monotonic())
        self._breaker = CircuitBreaker(sending, self._times.chance)
        self._finished: SimpleQueue[Finished] = SimpleQueue()
        self._unnoted: list[tuple[Planned, Outcome]] = []
        self.changed = threading.Event()  # set when a step may have something to do

    def recover(self) -> None:
        """Dead letters that a crash kept from being written behind their outcomes are written now."""
        known = self._outcomes.known
        dead = {o.intent: o.reason or "" for o in known.last if o.fate == "dead"}
        if dead and self._letters.lacks(known.batch):
            self._letters.write(known.batch, [(i, dead[i.offset]) for i in self._intents.at(sorted(dead))])

    def step(self) -> float:
        """Starts what is due and notes what has finished, in this order: the next calls run while the disk is waited for. Seconds
        until there is more to do, unless `changed` is set before."""
        self.changed.clear()
        self._collect()
        self._refill()
        wait = self._start()
        self._note()
        return wait

    def settle(self) -> None:
        """Notes what has finished, and starts nothing."""
        self._collect()
        self._note()

    def check_current(self) -> None:
        """Fenced if a later start of the flow sends now."""
        if self._outcomes.replaced():
            raise Fenced("a later start of the flow sends these actions now")

    def idle(self) -> bool:
        """Nothing is under way, and nothing can be done now: all is settled, or waits for its next try."""
        due = self._agenda.due()
        waits = due is None or due > self._times.monotonic() or not self._breaker.closed
        return not self._under_way and not self._unnoted and waits and self._finished.empty()

    def _refill(self) -> None:
        if self._full():
            return
        known, now = self._outcomes.known, self._times.monotonic()
        for intent in self._intents.more():
            if intent.offset not in known.final:
                self._agenda.add(intent, known.tries.get(intent.offset, 0), now)
            if self._full():
                return

    def _full(self) -> bool:
        return self._intents.next - self._oldest() >= WINDOW

    def _oldest(self) -> int:
        oldest = self._agenda.oldest
        return self._intents.next if oldest is None else oldest

    def _start(self) -> float:
        while self._under_way < self._sending.at_once and (due := self._agenda.due()) is not None:
            now = self._times.monotonic()
            wait = max(due - now, 0.0) or self._breaker.wait(now)
            wait = self._bucket.take(now) if wait == 0.0 else wait
            if wait is None or wait > 0.0:
                return LOOK if wait is None else min(wait, LOOK)
            self._breaker.start()
            self._under_way += 1
            self._pool.submit(self._do, self._agenda.take())
        return LOOK

    def _do(self, planned: Planned) -> None:
        """In a thread of the pool."""
        failure: BaseException | None = None
        try:
            self._fail("action.begun")
            self._action.do(planned.intent)
            self._fail("action.done")
        except BaseException as error:
            failure = error
        self._finished.put(Finished(planned, failure))
        self.changed.set()

    def _collect(self) -> None:
        while True:
            try:
                planned, failure = self._finished.get_nowait()
            except Empty:
                return
            self._under_way -= 1
            if failure is None:
                self._breaker.succeed()
                self._settle(planned, "done", planned.tries + 1)
            elif isinstance(failure, Exception):
                self._failed(planned, failure)
            else:
                raise failure

    def _failed(self, planned: Planned, failure: Exception) -> None:
        now, reason = self._times.monotonic(), reason_of(failure)
        if isinstance(failure, Refused):
            self._breaker.succeed()
            self._settle(planned, "dead", planned.tries + 1, reason)
            return
        innocent = isinstance(failure, Unavailable) and not self._breaker.closed  # a probe says nothing about its row
        self._breaker.fail(now)
        tries = planned.tries + (0 if innocent else 1)
        if tries >= self._sending.tries:
            self._settle(planned, "dead", tries, f"{reason}; given up after {tries} {'try' if tries == 1 else 'tries'}")
            return
        self._agenda.put_back(planned, now + self._before_next(failure, tries, now))
        planned.tries = tries
        if not innocent:
            self._unnoted.append((planned, Outcome(planned.intent.offset, planned.intent.key, "failed", tries, reason)))

    def _before_next(self, failure: Exception, tries: int, now: float) -> float:
        wait = pause(self._sending, max(tries, 1), self._times.chance())
        after = failure.after if isinstance(failure, NotDone) else None
        if after is None:
            return wait
        asked = min(after, 10 * self._sending.longest).total_seconds()
        self._breaker.hold(now + asked)
        return max(wait, asked)

    def _settle(self, planned: Planned, fate: Fate, tries: int, reason: str | None = None) -> None:
        self._agenda.settle(planned, self._times.monotonic())
        self._unnoted.append((planned, Outcome(planned.intent.offset, planned.intent.key, fate, tries, reason)))

    def _note(self) -> None:
        """All that finished since the last step goes in one frame: outcomes first, then the letters of those that are dead."""
        if not self._unnoted:
            return
        outcomes = [outcome for _, outcome in self._unnoted]
        self._outcomes.note(outcomes, self._oldest())
        self._fail("action.noted")
        dead = [(planned.intent, outcome.reason or "") for planned, outcome in self._unnoted if outcome.fate == "dead"]
        if dead:
            self._letters.write(self._outcomes.known.batch, dead)
            self._fail("action.letters")
        self._unnoted.clear()


def reason_of(failure: Exception) -> str:
    """What a dead letter says."""
    return failure.reason if isinstance(failure, NotDone) else f"{type(failure).__name__}: {failure}".rstrip(": ")
