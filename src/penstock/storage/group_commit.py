"""Group commit: requests that arrive while one is being committed wait, and the next commit takes all of them at once."""

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from penstock.errors import PenstockError, StorageError

T = TypeVar("T")
R = TypeVar("R")


class Refused(Exception):
    """Raised by a commit that found one of its requests wrong before anything was written: each is then committed alone."""

    def __init__(self, error: PenstockError) -> None:
        super().__init__(error.what)
        self.error = error


class Pending(Generic[T, R]):
    """A request on its way. A commit gives it a `result`, or an `error` if it fails while others of its group do not."""

    __slots__ = ("error", "group", "request", "result", "size", "turn")
    result: R

    def __init__(self, request: T, size: int = 0) -> None:
        self.request, self.size = request, size
        self.error: PenstockError | None = None
        self.turn = threading.Lock()
        self.turn.acquire()
        self.group: list[Pending[T, R]] | None = None  # what this thread commits for all, if it leads the next group


class GroupCommit(Generic[T, R]):
    """Requests of many threads, committed by one of them at a time. Each thread is woken once: when its request is decided, or
    to lead the next group."""

    def __init__(self, commit: Callable[[Sequence[Pending[T, R]]], None], interrupted: str, max_size: int | None = None) -> None:
        """commit: decides all requests of a group; what it raises fails those that have no error of their own. interrupted: what
        the others of a group hear if the thread that leads it is interrupted. max_size: of a group; one request may be larger."""
        self._commit, self._interrupted, self._max_size = commit, interrupted, max_size
        self._guard = threading.Lock()
        self._waiting: list[Pending[T, R]] = []
        self._busy = False

    @property
    def waiting(self) -> int:
        """Requests that wait for the commit that is under way."""
        return len(self._waiting)

    def run(self, request: T, size: int = 0) -> R:
        """Returns the result of the request once it is committed, or raises its error."""
        mine: Pending[T, R] = Pending(request, size)
        with self._guard:
            waits, self._busy = self._busy, True
            if waits:
                self._waiting.append(mine)
        if not waits or self._leads(mine):
            group = mine.group or [mine]
            try:
                self._decide(group)
            finally:
                self._hand_on(mine, group)
        if mine.error:
            raise mine.error
        return mine.result

    def run_alone(self, request: T) -> R:
        """The same for a request that shares its commit with no other, so that it is tried once at most."""
        mine: Pending[T, R] = Pending(request)
        self._decide([mine])
        if mine.error:
            raise mine.error
        return mine.result

    def _decide(self, group: Sequence[Pending[T, R]]) -> None:
        try:
            self._commit(group)
        except Refused as refused:
            if len(group) == 1:
                _fail(group, refused.error)
            else:
                self._decide_each(group)
        except PenstockError as error:
            _fail(group, error)
        except BaseException:
            _fail(group, StorageError(self._interrupted))
            raise

    def _decide_each(self, group: Sequence[Pending[T, R]]) -> None:
        for number, one in enumerate(group, 1):
            try:
                self._decide([one])
            except BaseException:
                _fail(group[number:], StorageError(self._interrupted))
                raise

    def _leads(self, mine: Pending[T, R]) -> bool:
        """Waits; whether this thread leads the next group. A thread that is interrupted leaves nobody waiting for it."""
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

    def _hand_on(self, mine: Pending[T, R], decided: Sequence[Pending[T, R]], left: Sequence[Pending[T, R]] = ()) -> None:
        """Wakes the leader of the next group, and those that are decided. left: requests of this group that are not."""
        with self._guard:
            waiting = [*left, *self._waiting]
            group = waiting if self._max_size is None else _first(waiting, self._max_size)
            self._waiting = waiting[len(group) :]
            self._busy = bool(group)
            if group:
                group[0].group = group
        for one in (*group[:1], *decided):
            if one is not mine:
                one.turn.release()


def _first(waiting: list[Pending[T, R]], max_size: int) -> list[Pending[T, R]]:
    """As many of the first as are not too large together."""
    size = 0
    for number, one in enumerate(waiting):
        size += one.size
        if number and size > max_size:
            return waiting[:number]
    return waiting


def _fail(group: Sequence[Pending[T, R]], error: PenstockError) -> None:
    """All of a group or none: a result may rest on another request that failed."""
    for one in group:
        one.error = one.error or error
