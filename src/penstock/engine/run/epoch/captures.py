"""How far an epoch reads the topics of captures: to one commit point of each capture, so that it holds whole transactions alone."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from penstock.capture.commits import Commit, Commits, commits_of, journal_name
from penstock.log.port import Log

Stops = Mapping[tuple[str, int], int]  # (source, partition) -> read no further


class Reading(NamedTuple):
    """A partition of a captured topic, as an epoch finds it."""

    step: str
    capture: str
    topic: str
    partition: int
    next: int  # the next offset to be read


class Limit(NamedTuple):
    """How far a partition is read."""

    stop: int  # in this epoch
    whole: int  # at most: behind it transactions are not known to be whole


class Captures:
    """The commit points up to which one flow reads. What was found is kept from epoch to epoch: a look at a journal that has not
    grown costs nothing, and a search begins where the last one has ended."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._commits: dict[str, Commits] = {}
        self._taken: dict[str, Commit] = {}  # the commit point to which an epoch was opened last

    def read_to(self) -> dict[tuple[str, int], int]:
        """The next offset of each journal that was looked at: a run waits for what comes behind it."""
        return {(journal_name(capture), 0): commits.seen for capture, commits in self._commits.items()}

    def limits(self, readings: Sequence[Reading], budget: int, stops: Stops) -> dict[tuple[str, int], Limit]:
        """How far each partition is read. The tables of a capture are cut at one commit point: the last one within the row budget,
        or the next one where already that exceeds it."""
        out: dict[tuple[str, int], Limit] = {}
        for capture in dict.fromkeys(reading.capture for reading in readings):
            mine = [reading for reading in readings if reading.capture == capture]
            chosen, last = self._chosen(capture, _Search(mine, budget, stops))
            for reading in mine:
                ends = (
                    reading.next if commit is None else commit.at(reading.topic, reading.partition) for commit in (chosen, last)
                )
                out[reading.step, reading.partition] = Limit(*(max(reading.next, end) for end in ends))
            used = sum(out[reading.step, reading.partition].stop - reading.next for reading in mine)
            budget = max(budget - used, min(budget, 1))
        return out

    def _chosen(self, capture: str, search: "_Search") -> tuple[Commit | None, Commit | None]:
        """The commit point to which this epoch reads, and the last one there is."""
        if capture not in self._commits:
            self._commits[capture] = commits_of(self._log, capture)
        commits, taken = self._commits[capture], self._taken.get(capture)
        start = taken.offset if taken and search.stands_at(taken) else 0
        last, _ = commits.divided(search.not_beyond, start)
        if last is None or not search.worth_it(last):
            return None, None
        chosen, _ = commits.divided(search.within_budget, start)
        if chosen is None or not search.worth_it(chosen):
            _, chosen = commits.divided(lambda commit: not search.worth_it(commit), start)
        if chosen is None or search.budget <= 0:
            return None, last
        chosen = min(chosen, last, key=lambda commit: commit.offset)
        self._taken[capture] = chosen
        return chosen, last


class _Search:
    """What is asked of commit points. Each question is answered in one way up to some commit and in the other from there on."""

    def __init__(self, readings: Sequence[Reading], budget: int, stops: Stops) -> None:
        self._readings, self.budget, self._stops = readings, budget, stops

    def _ends(self, commit: Commit) -> Iterator[tuple[Reading, int]]:
        return ((reading, commit.at(reading.topic, reading.partition)) for reading in self._readings)

    def stands_at(self, commit: Commit) -> bool:
        """Everything up to this commit was read, and no more."""
        return all(reading.next == end for reading, end in self._ends(commit))

    def not_beyond(self, commit: Commit) -> bool:
        """It asks for nothing behind the places at which a bounded run stops."""
        return all(end <= self._stops.get((reading.step, reading.partition), end) for reading, end in self._ends(commit))

    def within_budget(self, commit: Commit) -> bool:
        return sum(max(0, end - reading.next) for reading, end in self._ends(commit)) <= self.budget

    def worth_it(self, commit: Commit) -> bool:
        """There is something to read, and no table is ahead of it: of a transaction whose rows retention has removed in part, the
        rest is read together with all that follows up to a commit behind everything that was removed."""
        ends = list(self._ends(commit))
        return all(end >= reading.next for reading, end in ends) and any(end > reading.next for reading, end in ends)
