"""Where the transactions of a capture are whole: the commit points of its journal, found by search and not by reading it all."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.capture.naming import TRANSACTIONS
from penstock.capture.writing.journal import said_backwards, said_in
from penstock.errors import Mismatch, NotFound
from penstock.log.port import Log, Topic

_FIRST_LOOK = 64


@dataclass(frozen=True)
class Commit:
    """An END of the journal behind which no transaction is open: up to these offsets the topics hold whole transactions alone."""

    offset: int  # of its record in the journal
    offsets: Mapping[str, Sequence[int]]  # topic: the end of each partition; the journal ends behind this record

    def at(self, topic: str, partition: int) -> int:
        """Up to where a partition is whole; 0 where the capture had not written to it yet."""
        ends = self.offsets.get(topic, ())
        return ends[partition] if partition < len(ends) else 0


class Commits:
    """The commit points of one capture, in their order: of each the offsets are never less than those of the one before.

    No question reads more than a few frames, however long the journal is."""

    def __init__(self, journal: Topic) -> None:
        self._journal = journal
        self._newest: Commit | None = None
        self.seen = 0  # the end of the journal at the last look

    def newest(self) -> Commit | None:
        """The last one; None if there is none."""
        end = self._journal.ends()[0].next
        if end != self.seen:
            found = (self._commit(offset, said) for offset, said in said_backwards(self._journal))
            self._newest, self.seen = next((commit for commit in found if commit), None), end
        return self._newest

    def divided(self, passed: Callable[[Commit], bool], start: int = 0) -> tuple[Commit | None, Commit | None]:
        """The last one for which `passed` holds and the first for which it does not, from this offset of the journal on. It must
        hold up to some commit and from there on for none."""
        last, first = None, self.newest()
        if first is None or passed(first):
            return first, None
        low, high = max(start, self._journal.ends()[0].first), first.offset
        while low < high:
            middle = (low + high) // 2
            probe = self._next(middle, high) or first
            if passed(probe):
                last, low = probe, probe.offset + 1
            else:
                first, high = probe, middle
        return last, first

    def _next(self, start: int, stop: int) -> Commit | None:
        """The first one from this offset of the journal on, before another; None if there is none."""
        look = _FIRST_LOOK
        while start < stop:
            until = min(stop, start + look)
            for chunk in self._journal.read(0, start, until):
                found = (self._commit(offset, said) for offset, said in said_in(chunk) if start <= offset < stop)
                commit = next((commit for commit in found if commit), None)
                if commit:
                    return commit
            start, look = until, 4 * look
        return None

    def _commit(self, offset: int, said: Mapping[str, Any]) -> Commit | None:
        if "intent" in said or said["open"]:
            return None
        return Commit(offset, said["offsets"] | {self._journal.spec.name: [offset + 1]})


def commits_of(log: Log, capture: str) -> Commits:
    """The commit points of a capture that has written to this log."""
    name = journal_name(capture)
    try:
        return Commits(log.topic(name))
    except NotFound:
        raise Mismatch(
            f"topic {name} is gone: it says which transactions of capture {capture!r} are there as a whole",
            hint=f"restore it; or remove the topics of the capture too, and add it anew: penstock cdc remove {capture}",
        ) from None


def journal_name(capture: str) -> str:
    return f"{capture}.{TRANSACTIONS}"
