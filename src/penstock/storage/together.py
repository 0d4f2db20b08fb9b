"""Work that is cheaper together: what comes while one is at it waits, and is done by the next, all at once."""

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class _Waiting(Generic[T]):
    """A request, and the thread that brought it."""

    __slots__ = ("group", "request", "turn")

    def __init__(self, request: T) -> None:
        self.request = request
        self.turn = threading.Lock()
        self.turn.acquire()
        self.group: list[_Waiting[T]] | None = None  # what this thread has to do for all, if it is asked to


class Together(Generic[T]):
    """Requests of many threads, done by one of them at a time. Each thread is woken once: when its request is done, or to do it."""

    def __init__(self, do: Callable[[list[T]], None]) -> None:
        """do: is given requests and decides each of them; it raises only what all of them should die of."""
        self._do = do
        self._guard = threading.Lock()
        self._waiting: list[_Waiting[T]] = []
        self._busy = False

    def run(self, request: T) -> None:
        """Returns when the request is decided."""
        mine = _Waiting(request)
        with self._guard:
            waits, self._busy = self._busy, True
            if waits:
                self._waiting.append(mine)
        if waits and not self._asked(mine):
            return
        group = mine.group or [mine]
        try:
            self._do([one.request for one in group])
        finally:
            self._hand_on(mine, group)

    def _asked(self, mine: _Waiting[T]) -> bool:
        """Waits; whether this thread is to do the work. Who is interrupted leaves, but not with others waiting for it."""
        try:
            mine.turn.acquire()
        except BaseException:
            with self._guard:
                if mine in self._waiting:
                    self._waiting.remove(mine)
                group = mine.group
            if group:
                self._hand_on(mine, [mine], group[1:])
            raise
        return mine.group is not None

    def _hand_on(self, mine: _Waiting[T], done: list[_Waiting[T]], left: Sequence[_Waiting[T]] = ()) -> None:
        """Asks the next one, and tells the others. left: what was to be done with this one, and is not."""
        with self._guard:
            waiting, self._waiting = [*left, *self._waiting], []
            self._busy = bool(waiting)
            if waiting:
                waiting[0].group = waiting
        for one in (*waiting[:1], *done):
            if one is not mine:
                one.turn.release()
