"""Transactions that were left prepared are finished: all of an attempt are committed, or all are rolled back. (G37)

A driver takes the locks of all markers, writes, prepares in the order of the list, and then commits in the order of the list.
Nobody commits at a database before the first one has committed, and nobody rolls back at another before the first one is known
to be neither prepared nor committed. So the first database alone says what became of an attempt, also where a driver that was
paused goes on while its successor looks:

- a database has the epoch: the attempt was committed, and is committed where it is still prepared;
- all of them have it prepared: committed, for an epoch is decided before it is delivered;
- else: rolled back, and the epoch is delivered again. A driver that is still preparing then finds its transaction gone at the
  first database, and commits nowhere.

The databases are looked at from the last to the first, and at each first for its prepared transactions and then for its marker:
one that was prepared last shows that all before it had been prepared, so that where the first is seen to lack it by then it was
rolled back there. Whatever turns out to have changed meanwhile is looked at again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.errors import SinkUnavailable
from penstock.sinks.port import Marker
from penstock.sinks.stores.two_phase.gid import Attempt, Gid
from penstock.sinks.stores.two_phase.port import InDoubt

_LOOKS = 20  # somebody else is finishing them, too, if they change so often


@dataclass(frozen=True)
class Resolved:
    """What became of one prepared transaction."""

    called: str
    gid: Gid
    committed: bool


@dataclass(frozen=True)
class Seen:
    """One database as it was found."""

    of: InDoubt
    prepared: Mapping[Attempt, Gid]
    marker: Marker | None

    def has(self, attempt: Attempt) -> bool:
        return self.marker is not None and self.marker.incarnation == attempt.incarnation and self.marker.epoch >= attempt.epoch


def resolve(databases: Sequence[InDoubt], admit: Callable[[Attempt], None]) -> list[Resolved]:
    """Finishes all that is prepared. admit: raises for an attempt that is not ours to finish."""
    done: list[Resolved] = []
    for _ in range(_LOOKS):
        seen = look(databases)
        attempts = sorted({attempt for each in seen for attempt in each.prepared})
        if not attempts:
            return done
        for attempt in attempts:
            admit(attempt)
        for attempt in attempts:
            done += _finished(seen, attempt)
    raise SinkUnavailable(
        f"prepared transactions of {databases[0].called} change while they are finished", "somebody else is at it"
    )


def look(databases: Sequence[InDoubt]) -> list[Seen]:
    """In the order of the list; looked at from its end."""
    return [found(each) for each in reversed(databases)][::-1]


def found(of: InDoubt) -> Seen:
    """First what is prepared, then what is committed."""
    prepared = {gid.attempt: gid for gid in of.prepared()}
    note = of.kept()
    return Seen(of, prepared, note.marker if note else None)


def goes_on(seen: Sequence[Seen], attempt: Attempt) -> bool:
    """Whether it is to be committed; else it is rolled back."""
    return any(each.has(attempt) for each in seen) or all(attempt in each.prepared for each in seen)


def _finished(seen: Sequence[Seen], attempt: Attempt) -> Iterator[Resolved]:
    """Stops at the first that has changed since: then all are looked at again."""
    commits = goes_on(seen, attempt)
    for each in seen:
        if attempt in each.prepared:
            gid = each.prepared[attempt]
            if not (each.of.commit(gid) if commits else each.of.roll_back(gid)):
                return
            yield Resolved(each.of.called, gid, commits)
