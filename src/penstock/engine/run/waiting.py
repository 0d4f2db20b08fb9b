"""What a run does about errors that may pass by themselves: it waits, longer each time, says what for, and tries again (G30)."""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.core.time import Clock, SystemClock, moment
from penstock.errors import Passing

FIRST, MOST = 0.5, 30.0  # seconds before the first try again, and before any later one; each wait is cut by up to half, by chance
LIMIT = 60.0  # seconds for which a run to the end of what is there waits in a row


@dataclass
class WaitMessages:
    """Where a run says what it waits for: `say` once of its beginning, of another cause, and of its end; `line` at every try."""

    say: Callable[[str], None]
    line: Callable[[str], None]


@dataclass
class Waiting:
    """The waits of one flow. limit: seconds after which what is waited for ends the run; None: never."""

    flow: str
    stop: threading.Event
    messages: WaitMessages | None = None
    limit: float | None = field(default_factory=lambda: LIMIT)
    first: float = field(default_factory=lambda: FIRST)
    clock: Clock = field(default_factory=SystemClock)
    tries: int = 0
    _since: tuple[float, str] | None = None  # monotonic, and for people
    _cause: str = ""

    def over(self, error: Passing) -> None:
        """Waits a while, or until the run is to stop; raises the error once the limit is reached."""
        since, text = self._since = self._since or (time.monotonic(), moment(self.clock.now()).strftime("%H:%M:%S"))
        passed = time.monotonic() - since
        if self.limit is not None and passed >= self.limit:
            raise error
        if self.messages and error.what != self._cause:
            self.messages.say(f"{self.flow} waits since {text} UTC, and tries again: {error}")
        elif self.messages:
            self.messages.line(f"{self.flow} · waiting since {text} UTC ({passed:.0f} s, {self.tries} tries) · {error.what}")
        self._cause = error.what
        longest = min(MOST, self.first * 2 ** min(self.tries, 16))
        self.tries += 1
        self.stop.wait(longest * random.uniform(0.5, 1.0))  # so that many flows do not come back at once

    def ended(self) -> None:
        """What was waited for is there."""
        if self._since and self.messages:
            self.messages.say(f"{self.flow} goes on after {time.monotonic() - self._since[0]:.0f} s")
        self._since, self._cause, self.tries = None, "", 0
