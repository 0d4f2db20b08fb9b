"""Processes that a test has not started itself, signalled without ever meeting a stranger: a number that is free again is given to
others, a handle is not."""

import os
import signal


class OwnProcess:
    """Known by its number; taken while it still lives, or known to be gone."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self._handle: int | None = os.pidfd_open(pid)
        except ProcessLookupError:
            self._handle = None

    def send(self, number: signal.Signals) -> bool:
        """Whether it was still there to take the signal."""
        if self._handle is None:
            return False
        try:
            signal.pidfd_send_signal(self._handle, number)
        except ProcessLookupError:
            return False
        return True
