"""Stopping when asked to: what is under way is finished first."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def stopped_by_signals(
    stop: threading.Event, say: Callable[[str], None], words: str, begun: Callable[[], bool] = lambda: True
) -> Iterator[None]:
    """The first SIGINT or SIGTERM sets `stop`, and `words` are said; a second one ends at once, and so does the first as long as
    nothing has begun that would have to be finished."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: object) -> None:
        if stop.is_set() or not begun():
            raise KeyboardInterrupt
        say(words)
        stop.set()

    before = {s: signal.signal(s, handle) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
