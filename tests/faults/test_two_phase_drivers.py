"""An old driver that was paused anywhere and wakes up anywhere in the work of its successor harms nothing: two databases. (G37)"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from faults.two_phase_drivers import Chance, Move, Script, Stepping, Turns, together
from penstock.sinks.port import SinkSpec
from penstock.sinks.stores.port import Note
from penstock.sinks.stores.sql.postgres import PostgresDefinition
from penstock.sinks.stores.two_phase import resolving
from penstock.sinks.stores.two_phase.gid import Attempt, Gid
from penstock.sinks.stores.two_phase.port import InDoubt
from penstock.sinks.stores.two_phase.postgres import PostgresParticipant, PreparedTransaction
from penstock.sinks.stores.two_phase.resolving import Seen, found
from penstock.testing.contracts.sink import EVERYTHING
from penstock.testing.servers.postgres import PostgresServer
from two_phase_pair import GAPS, Pair, crashed, finished, pair_of

pytestmark = pytest.mark.faults


def wrong(pair: Pair, turns: Turns, kind: type[Stepping] = Stepping) -> list[str]:
    """What two drivers at once did that they must not."""
    came, watch = together(pair, turns, kind)
    told = list(watch.torn)
    if came[2] != "done" or came[1] not in ("done", "replaced"):
        told.append(f"the drivers came to {came}")
    first, second = pair.rows()
    if sorted(first) != EVERYTHING or sorted(second) != EVERYTHING:
        told.append(f"{first} and {second}")
    if any(pair.prepared()):
        told.append(f"left: {pair.prepared()}")
    return told


MANY = [pytest.param(range(n, n + 40), marks=pytest.mark.long) for n in range(10, 250, 40)]


@pytest.mark.parametrize("seeds", [range(10), *MANY])
def test_two_drivers_at_once_tear_nothing(seeds: range, postgres: PostgresServer) -> None:
    for seed in seeds:
        with pair_of([postgres], patience=40) as pair:
            assert wrong(pair, Chance(seed)) == [], f"seed {seed}"


# Who goes on until when: the old driver has delivered one epoch, and is in the second.
SCRIPTS: dict[str, list[Move]] = {
    "one is prepared": [(1, "prepare 1", 2), (2, "prepared 1", 2)],
    "one is committed": [(1, "commit 1", 2), (2, "prepared 1", 2)],
    # the first is prepared and committed between two looks of the successor
    "looked at too early": [(1, "prepare 0", 2), (2, "prepared 1", 1), (1, "commit 0", 2), (2, "prepared 0", 2)],
    "committed while looked at": [(1, "commit 0", 2), (2, "prepared 0", 1), (1, "commit 1", 2), (2, "prepared 1", 2)],
    # the old driver wakes up before its commit when the successor has prepared the same epoch in one database
    "the successor tries again": [
        (1, "prepare 1", 2), (2, "open 0", 2), (1, "commit 0", 2), (2, "prepare 1", 1), (1, "kept 0", 2),
    ],
    # the old driver tries again while the successor is about to roll back its first try
    "the old one tries again": [
        (1, "prepare 1", 2), (2, "prepared 1", 2), (1, "commit 0", 2), (2, "roll_back 1", 1), (1, "commit 1", 2),
        (2, "prepared 1", 3),
    ],
}  # fmt: skip


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_old_driver_that_wakes_up_tears_nothing(script: str, postgres: PostgresServer) -> None:
    with pair_of([postgres], patience=40) as pair:
        assert wrong(pair, Script(SCRIPTS[script])) == []


# bugs planted on purpose


class OfTheEpoch(Stepping):
    """The old driver and its successor have the same names for the same epoch."""

    def gid(self, attempt: Attempt) -> Gid:
        return replace(super().gid(attempt), attempt=replace(attempt, generation=0, token=""))


class OfTheDriver(Stepping):
    """A driver that tries an epoch again has the same names for it."""

    def gid(self, attempt: Attempt) -> Gid:
        return replace(super().gid(attempt), attempt=replace(attempt, token=""))


class Believing(Stepping):
    """Takes a transaction that is not there for one that was committed."""

    def commit(self, gid: Gid) -> bool:
        super().commit(gid)
        return True


class Counted(Stepping):
    """The name has a number of its own, and not that of the epoch."""

    def gid(self, attempt: Attempt) -> Gid:
        return replace(super().gid(attempt), attempt=replace(attempt, epoch=100 - attempt.epoch))


def forwards(databases: Sequence[InDoubt]) -> list[Seen]:
    """Looks at the databases in the order in which they are prepared."""
    return [found(each) for each in databases]


def marker_first(of: InDoubt) -> Seen:
    note = of.kept()
    return Seen(of, {gid.attempt: gid for gid in of.prepared()}, note.marker if note else None)


def caught(postgres: PostgresServer, script: str, kind: type[Stepping] = Stepping) -> bool:
    with pair_of([postgres], patience=40) as pair:
        return any("committed in" in told for told in wrong(pair, Script(SCRIPTS[script]), kind))


PLANTED = [
    (OfTheEpoch, "the successor tries again"),
    (OfTheDriver, "the old one tries again"),
    (Believing, "one is prepared"),
    (Counted, "one is committed"),
]


@pytest.mark.parametrize(("kind", "script"), PLANTED)
def test_wrong_names_and_blind_commits_are_caught(kind: type[Stepping], script: str, postgres: PostgresServer) -> None:
    assert caught(postgres, script, kind)


@pytest.mark.parametrize(("commits", "script"), [(True, "one is prepared"), (False, "one is committed")])
def test_finishing_one_without_looking_at_the_other_is_caught(
    commits: bool, script: str, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolving, "goes_on", lambda seen, attempt: commits)
    assert caught(postgres, script)


LOOKING = [("look", forwards, "looked at too early"), ("found", marker_first, "committed while looked at")]


@pytest.mark.parametrize(("what", "wrongly", "script"), LOOKING)
def test_looking_in_the_wrong_order_is_caught(
    what: str, wrongly: object, script: str, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolving, what, wrongly)
    assert caught(postgres, script)


class MarkerAside(PostgresParticipant):
    """Rows are prepared and committed alone; the marker has a transaction of its own behind them."""

    def __init__(self, definition: PostgresDefinition, spec: SinkSpec) -> None:
        super().__init__(definition, spec)
        self.aside: list[Note] = []

    @contextmanager
    def transaction(self) -> Iterator[PreparedTransaction]:
        with super().transaction() as begun:
            aside = _Aside(begun, self.aside)
            yield aside
            while not aside.ready and self.aside:
                begun.keep(self.aside.pop())

    def commit(self, gid: Gid) -> bool:
        done = super().commit(gid)
        while done and self.aside:
            with super().transaction() as begun:
                begun.keep(self.aside.pop())
        return done


class _Aside(PreparedTransaction):
    def __init__(self, begun: PreparedTransaction, aside: list[Note]) -> None:
        vars(self).update(vars(begun))
        self.aside, self.ready = aside, False

    def keep(self, note: Note) -> None:
        self.aside.append(note)

    def prepare(self, gid: Gid) -> None:
        super().prepare(gid)
        self.ready = True


@pytest.mark.parametrize(("point", "nth"), GAPS[1:3])
def test_a_marker_beside_the_prepared_transaction_is_caught(point: str, nth: int, postgres: PostgresServer) -> None:
    with pair_of([postgres]) as pair:
        crashed(pair, point, nth, MarkerAside)
        finished(pair, 2, MarkerAside)
        assert any(sorted(rows) != EVERYTHING for rows in pair.rows())
