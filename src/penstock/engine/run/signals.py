"""Stopping when asked to: what is under way is finished first."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

TERMINATED = 128 + signal.SIGTERM


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """As long as nothing is under way that would have to be finished: SIGINT and SIGTERM end it, wherever it hangs."""

    def handle(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTERM:
            raise SystemExit(TERMINATED)
        raise KeyboardInterrupt

    with _handled(handle):
        yield


@contextmanager
def stopped_by_signals(stop: threading.Event, say: Callable[[str], None], words: str) -> Iterator[None]:
    """The first SIGINT or SIGTERM sets `stop`, and `words` are said; a second one ends at once."""

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        say(words)
        stop.set()

    with _handled(handle):
        yield


@contextmanager
def _handled(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """SIGINT and SIGTERM by this handler; only the main thread can set one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {s: signal.signal(s, handle) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
