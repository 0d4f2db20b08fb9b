"""A queue's journal and what it says, kept by several threads and processes: those that wait together share one sync."""

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from penstock.errors import PenstockError, StorageError
from penstock.queue.on_log.commands import Event, waken
from penstock.queue.on_log.journal import Journal, Written
from penstock.queue.on_log.share import Share
from penstock.queue.state.machine import Now
from penstock.storage.port import Storage
from penstock.storage.together import Together

T = TypeVar("T")
ROLL = 8 << 20  # bytes of a journal before it is summed up

Act = Callable[[Share, Now], tuple[T, list[Event]]]  # does something to a share, and gives what it did


@dataclass
class _Request(Generic[T]):
    act: Act[T]
    durable: bool
    result: list[T] = field(default_factory=list)
    error: PenstockError | None = None
    written: Written | None = None  # where its events stand, if there are any


class _Spoiled(Exception):
    """A request of several failed before anything was written."""


class SharedJournal:
    """One queue's state. What is done to it is in the journal before anybody is told."""

    def __init__(self, storage: Storage, directory: str, now: Callable[[], Now], bury: Callable[[Share, int, int], None]) -> None:
        """bury: puts a message (place, number) among the dead letters; called again with the same number after a crash."""
        self._storage, self._directory, self._now, self._bury = storage, directory, now, bury
        self._begin()

    def _begin(self) -> None:
        self._pid, self._journal = os.getpid(), Journal(self._storage, self._directory)
        self._leader, self._together = threading.Lock(), Together(self._commit)
        self._share: Share | None = None
        self._roll_at = ROLL
        self.trouble: PenstockError | None = None  # why dead letters could not be put away

    def run(self, act: Act[T], durable: bool = True) -> T:
        """Does something under the lock; it may be tried twice. durable: it survives a power loss when this returns."""
        self._notice_fork()
        request = _Request(act, durable)
        self._together.run(request)
        return self._answer(request)

    def run_alone(self, act: Act[T], durable: bool = True) -> T:
        """The same for what must not be tried twice."""
        self._notice_fork()
        request = _Request(act, durable)
        self._commit([request])
        return self._answer(request)

    def _answer(self, request: _Request[T]) -> T:
        if request.error:
            raise request.error
        if request.durable and request.written:
            self._make_safe(request.written)
        return request.result[0]

    def _make_safe(self, written: Written) -> None:
        try:
            written.sync()
        except PenstockError:  # what is known goes into another file, and is safe there
            with self._leader, self._storage.lock(f"{self._directory}/lock"):
                self._caught_up()

    def _notice_fork(self) -> None:
        if self._pid != os.getpid():
            self._begin()

    def _commit(self, group: Sequence[_Request[Any]]) -> None:
        try:
            with self._leader, self._storage.lock(f"{self._directory}/lock"):
                self._do(group)
        except _Spoiled:
            self._share = None
            for request in group:
                self._commit([request])
        except PenstockError as error:
            self._fail(group, error)
        except BaseException:
            self._fail(group, StorageError("the queue was interrupted; what was asked for may be done"))
            raise

    def _fail(self, group: Sequence[_Request[Any]], error: PenstockError) -> None:
        self._share = None  # it may know of things that are not in the journal
        for request in group:
            request.result, request.error = [], error

    def _do(self, group: Sequence[_Request[Any]]) -> None:
        share, now = self._caught_up(), self._now()
        events = waken(share.book, now)
        for request in group:
            events += _done(request, share, now, len(group) > 1)
        leaving = [place for place in share.book.leaving if place not in share.burials]
        events += [share.bury(place) for place in leaving]
        if events:
            written = self._journal.write(events)
            for request in group:
                request.written = written
        if share.burials:
            self._put_to_rest(share, written if leaving else None)
        if self._journal.size > self._roll_at:
            self._move(share)

    def _put_to_rest(self, share: Share, written: Written | None) -> None:
        """Messages that leave have a number in the journal by now: whoever tries again after a crash finds the first try."""
        try:
            if written:
                written.sync()
            for place, number in list(share.burials.items()):
                self._bury(share, place, number)
                self._journal.write([share.rest(place)])
            self.trouble = None
        except PenstockError as error:  # what was asked for is done; this is tried again with the next call
            self.trouble, self._share = error, None

    def _caught_up(self) -> Share:
        """What this queue is now, whoever changed it."""
        if self._share is None:
            self._journal.drop()
        events, fresh = self._journal.catch_up()
        if self._journal.moved and not fresh:
            events, fresh = self._journal.catch_up()  # where it goes on, if whoever moved it came that far
        if fresh:
            self._share, events = Share.of(events[0]), events[1:]
        assert self._share
        for event in events:
            self._share.told(event)
        if self._journal.must_move:
            self._move(self._share)
        return self._share

    def _move(self, share: Share) -> None:
        self._journal.move(share.sum())
        self._roll_at = max(ROLL, 8 * self._journal.size)


def _done(request: _Request[T], share: Share, now: Now, others: bool) -> list[Event]:
    try:
        result, events = request.act(share, now)
    except PenstockError as error:
        raise _Spoiled if others else error from None
    request.result = [result]
    return events
