"""When to send next: backoff with jitter, a token bucket, a circuit breaker. Pure: the time is given, in seconds."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.core.time import SystemClock
from penstock.sinks.actions.outbox.sending import Sending


@dataclass(frozen=True)
class Times:
    """Where time and chance come from: the machine, or a test."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], int] = field(default_factory=lambda: SystemClock().now)  # microseconds since 1970
    chance: Callable[[], float] = random.random  # in [0, 1)


def pause(sending: Sending, tries: int, chance: float) -> float:
    """Seconds before the next try: doubled with each, up to the longest, of which between a half and the whole."""
    whole = min(sending.backoff.total_seconds() * 2.0 ** min(tries - 1, 60), sending.longest.total_seconds())
    return whole * (0.5 + 0.5 * chance)


class TokenBucket:
    """At most `rate` a second, and as many at once; None: no limit."""

    def __init__(self, rate: float | None, now: float) -> None:
        self._rate, self._tokens, self._at = rate, max(rate or 0.0, 1.0), now

    def take(self, now: float) -> float:
        """0: go ahead; else how many seconds to wait before asking again."""
        if self._rate is None:
            return 0.0
        self._tokens = min(self._tokens + (now - self._at) * self._rate, max(self._rate, 1.0))
        self._at = now
        if self._tokens < 1.0 - 1e-9:
            return (1.0 - self._tokens) / self._rate
        self._tokens -= 1.0
        return 0.0


class CircuitBreaker:
    """Closed: all go. Open, after so many failures in a row: none. Half-open, when its pause is over: one goes as a probe, and
    closes it again or opens it for longer."""

    def __init__(self, sending: Sending, chance: Callable[[], float]) -> None:
        self._sending, self._chance = sending, chance
        self._failures, self._opened, self._until, self._probing = 0, 0, float("-inf"), False

    @property
    def closed(self) -> bool:
        return not self._opened

    def wait(self, now: float) -> float | None:
        """0: one may go; seconds until one may; None: not before the probe has come back."""
        if now < self._until:
            return self._until - now
        return None if self._opened and self._probing else 0.0

    def start(self) -> None:
        """One goes."""
        self._probing = bool(self._opened)

    def succeed(self) -> None:
        """The receiver answered, whatever it said."""
        self._failures, self._opened, self._probing = 0, 0, False

    def fail(self, now: float) -> None:
        """It did not answer, or could not do anything."""
        self._failures += 1
        late = self._opened and not self._probing  # under way when it opened: tells nothing new
        self._probing = False
        if self._failures >= self._sending.opens_after and not late:
            self._opened += 1
            self._until = max(self._until, now + pause(self._sending, self._opened, self._chance()))

    def hold(self, until: float) -> None:
        """Nobody goes before then: the receiver asked for it."""
        self._until = max(self._until, until)
