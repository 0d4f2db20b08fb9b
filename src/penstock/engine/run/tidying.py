"""While flows run, the topics of their log are cleaned now and then: retention, compaction, rewriting."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.errors import PenstockError
from penstock.log.cleaning.topics import Cleanable, clean_topics
from penstock.log.port import Log

EVERY = 60.0  # seconds between two cleanings


@contextmanager
def tidied(log: Log, say: Callable[[str], None], every: float = EVERY) -> Iterator[None]:
    """For the time of a `with`; a cleaning under way at its end is finished. A broker of its own cleans by its own rules."""
    over = threading.Event()

    def tidy() -> None:
        while not over.wait(every):
            try:
                clean_topics(log, log.groups().positions, say)
            except PenstockError as error:
                say(f"topics could not be cleaned: {error.what}")

    thread = threading.Thread(target=tidy, name="tidying", daemon=True)
    if isinstance(log, Cleanable):
        thread.start()
    try:
        yield
    finally:
        over.set()
        if thread.is_alive():
            thread.join()
