"""Messages on their way from the thread that reads them to whoever decodes them: a queue that is bounded in bytes."""

import threading
from collections.abc import Sequence

from penstock.errors import PenstockError

GATHERING = 0.0015  # seconds; to decode many messages at once is cheaper by far


class Inbox:
    """Filled by one thread, emptied by another. Once it holds `bound` bytes there is no room until it was emptied."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._messages: list[bytes] = []
        self._bytes = 0
        self._changed = threading.Condition()
        self._error: PenstockError | None = None
        self.end = 0  # of the server's log, as it was said last
        self.passed = 0  # all that was committed before it has been taken out

    @property
    def room(self) -> bool:
        return self._bytes < self._bound

    @property
    def held(self) -> int:
        return self._bytes

    def put(self, messages: Sequence[bytes], end: int) -> None:
        """In their order; the server's log had been sent up to `end` behind the last of them."""
        with self._changed:
            first = not self._messages
            self._messages += messages
            self._bytes += sum(map(len, messages))
            self.end = max(self.end, end)
            if first or not self.room:
                self._changed.notify_all()

    def fail(self, error: PenstockError) -> None:
        """Nothing more will come."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def take(self, wait: float) -> list[bytes]:
        """All that is there, once something is and a moment has passed in which more may come; nothing after `wait` seconds. What
        has failed is raised once everything before it was taken."""
        with self._changed:
            self._changed.wait_for(lambda: self._messages or self._error, wait)
            if self._messages:
                self._changed.wait_for(lambda: not self.room or self._error, GATHERING)
            elif self._error:
                raise self._error
            taken, self._messages, self._bytes = self._messages, [], 0
            self.passed = self.end
            return taken
