"""Asking somebody outside: a function of the user's or a store, in a thread of its own, so that waiting can end."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from typing import Any

from penstock.core.time import duration_text
from penstock.plan import Asked, Lookup, Remote

Ask = Callable[[Asked], Any]
Todo = queue.SimpleQueue[tuple[Asked, "Future[Any]"] | None]


class TookTooLong(Exception):
    pass


class Asker:
    """Calls one after the other. A call that takes too long is left behind with its thread, and the next one gets a new one."""

    _todo: Todo | None = None

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        remote = lookup.remote
        called = getattr(remote, "__qualname__", type(remote).__name__)
        self.name = remote.called if isinstance(remote, Remote) else called.replace("<locals>.", "")

    def ask(self, keys: Asked, timeout: timedelta | None) -> Any:
        if self._todo is None:
            self._todo = queue.SimpleQueue()
            threading.Thread(target=_work, args=(self._lookup, self._todo), daemon=True, name=f"lookup-{self.name}").start()
        given: Future[Any] = Future()
        self._todo.put((keys, given))
        try:
            return given.result(timeout.total_seconds() if timeout else None)
        except TimeoutError as error:
            if given.done():  # the function itself raised it
                raise
            self._todo.put(None)  # once it comes back, it ends
            self._todo = None
            raise TookTooLong(f"no answer within {duration_text(timeout or timedelta())}") from error

    def __del__(self) -> None:
        if self._todo is not None:
            self._todo.put(None)


def _work(lookup: Lookup, todo: Todo) -> None:
    """What a thread does until it is told None. A connection stays open from call to call, and is opened anew after an error."""
    ask: Ask | None = None
    while (todo_next := todo.get()) is not None:
        keys, given = todo_next
        try:
            ask = ask or _opened(lookup)
            given.set_result(ask(keys))
        except BaseException as error:
            _close(lookup, ask)
            ask = None
            given.set_exception(error)
    _close(lookup, ask)


def _opened(lookup: Lookup) -> Ask:
    return lookup.remote.open(lookup) if isinstance(lookup.remote, Remote) else lookup.remote


def _close(lookup: Lookup, ask: Any) -> None:
    if ask is not None and isinstance(lookup.remote, Remote):
        with suppress(Exception):  # what went wrong before is the news
            ask.close()
