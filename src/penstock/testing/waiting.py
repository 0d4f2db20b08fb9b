"""Waiting in tests: for a condition, never for a time."""

import threading
import time
from collections.abc import Callable


def until(holds: Callable[[], bool], seconds: float) -> bool:
    """Whether it came to hold before the deadline; looked at once or more, up to a hundred times a second."""
    deadline, moment = time.monotonic() + seconds, threading.Event()
    while not holds():
        if time.monotonic() >= deadline:
            return False
        moment.wait(0.01)
    return True
