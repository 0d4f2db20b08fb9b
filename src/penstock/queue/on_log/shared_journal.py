"""The journal of a queue and its state, shared by threads and processes: a group commit writes what several threads do at once."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from penstock.errors import PenstockError
from penstock.queue.on_log import events as journal_events
from penstock.queue.on_log.events import AnyEvent, DeadLetterNumbered, DeadLetterStored
from penstock.queue.on_log.journal import Journal, Written
from penstock.queue.on_log.state import LogQueueState
from penstock.queue.state.clock import Now
from penstock.queue.state.events import Rebooted
from penstock.storage.group_commit import GroupCommit, Pending, Refused
from penstock.storage.port import Storage

T = TypeVar("T")
ROLL = 8 << 20  # bytes of a journal before a snapshot begins a new file
_INTERRUPTED = "the queue was interrupted; what was asked for may be done"

Change = Callable[[LogQueueState, Now], tuple[T, Sequence[AnyEvent]]]  # changes the state, and gives what happened
StoreDeadLetter = Callable[[LogQueueState, int, int], None]


class _Result(NamedTuple, Generic[T]):
    value: T
    written: Written | None  # where its events end, if there are any


class SharedJournal:
    """The state of one queue, in one process. Whatever changes it is in the journal before anybody hears of it."""

    def __init__(self, storage: Storage, directory: str, now: Callable[[], Now], store_dead_letter: StoreDeadLetter) -> None:
        """store_dead_letter: stores the message at a position under a number; called again with the same number after a crash."""
        self._storage, self._directory, self._now, self._store_dead_letter = storage, directory, now, store_dead_letter
        self._journal, self._leader = Journal(storage, directory), threading.Lock()
        self._changes: GroupCommit[Change[Any], _Result[Any]] = GroupCommit(self._commit, _INTERRUPTED)
        self._state: LogQueueState | None = None
        self._roll_at = ROLL
        self.trouble: PenstockError | None = None  # why dead letters could not be stored

    def run(self, change: Change[T], durable: bool = True, alone: bool = False) -> T:
        """Changes the state under the lock. durable: it survives a power loss when this returns. alone: the change is tried once
        at most; others may be tried a second time."""
        result: _Result[T] = self._changes.run_alone(change) if alone else self._changes.run(change)
        if durable and result.written:
            try:
                self._journal.sync(result.written)
            except PenstockError:  # the state goes into another file, and is safe there
                with self._leader, self._storage.lock(f"{self._directory}/lock"):
                    self._caught_up()
        return result.value

    def _commit(self, group: Sequence[Pending[Change[Any], _Result[Any]]]) -> None:
        try:
            with self._leader, self._storage.lock(f"{self._directory}/lock"):
                state = self._caught_up()
                values, events = self._changed(state, group)
                numbered = _number_dead_letters(state) if state.machine.dying else []
                events += numbered
                written = self._journal.write([event.encode() for event in events]) if events else None
                for one, value in zip(group, values, strict=True):
                    one.result = _Result(value, written)
                if state.dead_letters:
                    self._store_dead_letters(state, written if numbered else None)
                if self._journal.size > self._roll_at:
                    self._move(state)
        except BaseException:
            self._state = None  # it may know of things that are not in the journal
            raise

    def _changed(
        self, state: LogQueueState, group: Sequence[Pending[Change[Any], _Result[Any]]]
    ) -> tuple[list[Any], list[AnyEvent]]:
        now, values = self._now(), list[Any]()
        events: list[AnyEvent] = [Rebooted(now.boot)] if state.machine.advance(now) else []
        try:
            for one in group:
                value, happened = one.request(state, now)
                values.append(value)
                events += happened
        except PenstockError as error:  # nothing is written yet
            raise Refused(error) from error
        return values, events

    def _store_dead_letters(self, state: LogQueueState, written: Written | None) -> None:
        """They have their numbers in the journal by now: whoever tries again after a crash finds the first try."""
        try:
            if written:
                self._journal.sync(written)
            for position, number in list(state.dead_letters.items()):
                self._store_dead_letter(state, position, number)
                stored = DeadLetterStored(position)
                stored.apply(state)
                self._journal.write([stored.encode()])
            self.trouble = None
        except PenstockError as error:  # what was asked for is done; this is tried again with the next call
            self.trouble, self._state = error, None

    def _caught_up(self) -> LogQueueState:
        """The state of the queue now, whoever changed it."""
        if self._state is None:
            self._journal.drop()
        events, fresh = self._journal.catch_up()
        if self._journal.moved and not fresh:
            events, fresh = self._journal.catch_up()  # where it goes on, if whoever moved it came that far
        if fresh:
            self._state, events = journal_events.decode_snapshot(events[0]), events[1:]
        assert self._state
        for event in events:
            journal_events.apply(event, self._state)
        if self._journal.must_move:
            self._move(self._state)
        return self._state

    def _move(self, state: LogQueueState) -> None:
        self._journal.move(journal_events.encode_snapshot(state))
        self._roll_at = max(ROLL, 8 * self._journal.size)


def _number_dead_letters(state: LogQueueState) -> list[AnyEvent]:
    """Gives each dying message the number under which it is stored among the dead letters."""
    events: list[AnyEvent] = []
    for position, reason in state.machine.dying.items():
        if position not in state.dead_letters:
            state.dead_letter += 1
            state.dead_letters[position] = state.dead_letter
            events.append(DeadLetterNumbered(position, state.dead_letter, reason))
    return events
