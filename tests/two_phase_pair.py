"""Two databases that get every epoch together, for tests: how they are written, read, and what is left prepared in them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from penstock.sinks.port import SinkContext, SinkSpec, nothing
from penstock.sinks.stores.sql.postgres import PostgresDefinition
from penstock.sinks.stores.two_phase.definition import TwoPhaseDefinition, two_phase
from penstock.sinks.stores.two_phase.postgres import PostgresParticipant
from penstock.sinks.stores.two_phase.sink import TwoPhaseSink
from penstock.storage.port import Storage
from penstock.testing.contracts.sink import EPOCHS, SPEC, Crash, CrashAt, Row, delivery, staged_epochs
from penstock.testing.servers.postgres import PostgresServer

LIFE = "life"
# Where a driver can end in the middle of an epoch of two databases: a point, and how often it was passed.
GAPS = [("two_phase.prepared", 1), ("two_phase.prepared", 2), ("two_phase.committed", 1), ("two_phase.committed", 2)]
IMPATIENT = "?options=-c%20lock_timeout%3D"  # milliseconds: whoever waits for another driver is to say so soon
Participate = Callable[[PostgresDefinition, SinkSpec], PostgresParticipant]


@dataclass(frozen=True)
class Pair:
    """The table of one name in two databases."""

    urls: tuple[str, str]
    table: str
    patience: int = 300

    def definition(self) -> TwoPhaseDefinition:
        return two_phase([PostgresDefinition(f"{url}{IMPATIENT}{self.patience}", self.table) for url in self.urls])

    def sink(
        self,
        spec: SinkSpec,
        storage: Storage,
        fail: Callable[[str], None] = nothing,
        participate: Participate = PostgresParticipant,
    ) -> TwoPhaseSink:
        participants = [participate(each, spec) for each in self.definition().participants]
        context = SinkContext(spec, None, storage, Path(), fail)  # type: ignore[arg-type]
        return TwoPhaseSink(context, participants)

    def query(self, statement: str) -> list[list[tuple[object, ...]]]:
        """Of each database."""
        found = []
        for url in self.urls:
            with psycopg.connect(url, autocommit=True) as connection:
                done = connection.execute(statement)  # type: ignore[call-overload]
                found.append(done.fetchall() if done.description else [])
        return found

    def rows(self) -> tuple[list[Row], list[Row]]:
        first, second = self.query(f"select id, text from {self.table}")
        return first, second  # type: ignore[return-value]

    def both(self) -> list[Row]:
        """What both hold; they must hold the same."""
        first, second = self.rows()
        assert sorted(first) == sorted(second), "the two databases differ"
        return first

    def prepared(self) -> list[list[str]]:
        mine = (
            "select gid from pg_prepared_xacts where database = current_database() and starts_with(gid, 'penstock:') order by gid"
        )
        return [[str(gid) for (gid,) in found] for found in self.query(mine)]

    def cleared(self) -> None:
        """Nothing is left prepared, and the schema of the table is gone."""
        for url, gids in zip(self.urls, self.prepared(), strict=True):
            with psycopg.connect(url, autocommit=True) as connection:
                for gid in gids:
                    connection.tpc_rollback(gid)
        self.query(f"drop schema if exists {self.table.partition('.')[0]} cascade")


def second_database(server: PostgresServer) -> str:
    """The URL of a database beside the one that every server has."""
    if not server.execute("select 1 from pg_database where datname = 'second'"):
        server.execute("create database second")
    return server.url.rpartition("/")[0] + "/second"


@contextmanager
def pair_of(servers: Sequence[PostgresServer], patience: int = 300) -> Iterator[Pair]:
    """In one server, or in one of each of two."""
    second = servers[1].url if len(servers) > 1 else second_database(servers[0])
    pair = Pair((servers[0].url, second), f"s{uuid4().hex[:12]}.results", patience)
    try:
        yield pair
    finally:
        pair.cleared()


def appending(spec: SinkSpec) -> SinkSpec:
    """Rows without a key: what is written twice is there twice."""
    return replace(spec, key=())


def crashed(pair: Pair, point: str, nth: int, participate: Participate = PostgresParticipant) -> None:
    """A driver that delivered epoch 0 and ended in epoch 1, without a word."""
    sink = pair.sink(appending(SPEC), staged_epochs(EPOCHS), participate=participate)
    sink.open(LIFE, 1)
    sink.deliver(delivery(0))
    sink.close()
    sink = pair.sink(appending(SPEC), staged_epochs(EPOCHS), CrashAt(point, nth), participate)
    sink.open(LIFE, 1)
    with pytest.raises(Crash):
        sink.deliver(delivery(1))
    sink.close()


def finished(pair: Pair, generation: int, participate: Participate = PostgresParticipant) -> int:
    """The epoch that a new driver finds; it delivers the rest."""
    sink = pair.sink(appending(SPEC), staged_epochs(EPOCHS), participate=participate)
    found = sink.open(LIFE, generation)
    for epoch in range(found + 1, max(EPOCHS) + 1):
        sink.deliver(delivery(epoch, generation))
    sink.close()
    return found
