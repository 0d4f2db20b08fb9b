"""How often a database is looked at: often while it is written to, less often while nothing happens."""

import time
from collections.abc import Iterator

SHORTEST, LONGEST = 0.02, 0.25  # seconds between two looks
_SLOWER = 1.3


class Pacing:
    """Pauses between looks."""

    def __init__(self) -> None:
        self._pause = SHORTEST

    def busy(self) -> None:
        """Something has come."""
        self._pause = SHORTEST

    def tries(self, wait: float) -> Iterator[None]:
        """One look after the other, for so many seconds; at least one."""
        deadline = time.monotonic() + wait
        while True:
            yield
            left = deadline - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(self._pause, left))
            self._pause = min(LONGEST, _SLOWER * self._pause)
