"""Waiting in tests: for a condition, never for a time."""

import threading
import time
from collections.abc import Callable


def until(holds: Callable[[], bool], seconds: float = 120) -> bool:
    """Whether it came to hold before the deadline; looked at a hundred times a second."""
    deadline, moment = time.monotonic() + seconds, threading.Event()
    while time.monotonic() < deadline:
        if holds():
            return True
        moment.wait(0.01)
    return holds()
