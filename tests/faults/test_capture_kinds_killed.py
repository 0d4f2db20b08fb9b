"""Captures by triggers and by polls, killed at any moment while sessions write: the topic folded is the table, and what triggers
have told is what each session did, each change once and in its order."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import orjson
import pytest

from contract.capture_databases import PostgresSchema, SqliteDatabase, postgres_schema, sqlite_file
from faults.capture_process import PATIENCE, Captured, captured
from faults.seeds import SEED
from penstock.capture.definition import CaptureDefinition
from penstock.capture.kind import kind_of
from penstock.testing.contracts.capture.contract import ROLL_BACK
from penstock.testing.contracts.capture.records import Record, envelopes_of
from waiting import until

pytestmark = pytest.mark.faults
SESSIONS, KEYS, STILL = 3, 40, 1500  # sessions, keys of each, and rows that nobody changes
FIRST = 1000  # of those

Said = tuple[str, int, str | None]  # op, key, value
Rows = dict[int, str]


@dataclass
class Session:
    """Writes rows of its own, and remembers what it has committed."""

    database: PostgresSchema | SqliteDatabase
    number: int
    random: Random
    rows: Rows = field(default_factory=dict)
    said: list[Said] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    wrong: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stop.wait(0.005):
                self._transaction()
        except BaseException as error:
            self.wrong = error

    def _transaction(self) -> None:
        rows, said, undone = dict(self.rows), list[Said](), self.random.random() < 0.15
        statements = [self._statement(rows, said) for _ in range(self.random.choice([1, 1, 2, 5]))]
        self.database.execute(*statements, *([ROLL_BACK] if undone else []))
        if not undone:
            self.rows = rows
            self.said += said

    def _statement(self, rows: Rows, said: list[Said]) -> str:
        key, value = self._key(), f"{self.random.random()}"
        if key not in rows:
            new = {each: value for each in (key, *(self._key() for _ in range(self.random.choice([0, 0, 4])))) if each not in rows}
            rows |= new
            said += [("c", each, value) for each in new]
            return inserted(new)
        other = self._key()
        if self.random.random() < 0.2 and other not in rows:
            rows[other] = rows.pop(key)
            said += [("d", key, None), ("c", other, rows[other])]
            return f"update t set id = {other} where id = {key}"
        if self.random.random() < 0.4:
            del rows[key]
            said.append(("d", key, None))
            return f"delete from t where id = {key}"
        rows[key] = value
        said.append(("u", key, value))
        return f"update t set v = '{value}' where id = {key}"

    def _key(self) -> int:
        return self.number + SESSIONS * self.random.randrange(KEYS)


class Place:
    """A table that is followed and written to."""

    def __init__(self, database: PostgresSchema | SqliteDatabase, engine: str, home: Path, seed: int) -> None:
        self.database, self.engine = database, engine
        self.sessions = [Session(database, number, Random(f"{seed} {number}")) for number in range(SESSIONS)]
        for session in self.sessions:
            session.rows = {session.number + SESSIONS * i: "first" for i in range(0, KEYS, 2)}
        self.still = {FIRST + i: "still" for i in range(STILL)}
        database.execute("create table t (id integer primary key, v text)")
        database.execute(inserted(self.table))
        options = {"every": "50 ms"} if engine == "poll" else {}
        wanted = CaptureDefinition("killed", engine, database.url, ((database.schema, "t"),), id=uuid4().hex, options=options)
        self.definition = kind_of(engine).set_up(wanted)
        self.capture = captured("capture_kind_child.py", home, orjson.dumps(self.definition.json()).decode())

    @property
    def table(self) -> Rows:
        """What the table must have."""
        return {key: value for rows in (self.still, *(each.rows for each in self.sessions)) for key, value in rows.items()}

    @contextmanager
    def written(self) -> Iterator[None]:
        """The sessions write meanwhile."""
        threads = [threading.Thread(target=session.run) for session in self.sessions]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            for session in self.sessions:
                session.stop.set()
            for thread in threads:
                thread.join(PATIENCE)
        assert [session.wrong for session in self.sessions] == [None] * SESSIONS

    def changes(self) -> int:
        return sum(len(session.said) for session in self.sessions)


def inserted(rows: Rows) -> str:
    values = ", ".join(f"({key}, '{value}')" for key, value in rows.items())
    return f"insert into t values {values}"


def kill_often(place: Place, random: Random, kills: int) -> None:
    with place.capture as capture:
        with place.written():
            for number in range(kills):
                kill_once(capture, random)
                assert until(lambda number=number: place.changes() > 20 * number)  # type: ignore[misc]
        capture.start()
        topic = place.definition.names.topic((place.database.schema, "t"))
        said = list[Record]()

        def complete() -> bool:
            said[:] = envelopes_of(capture.log, topic)
            return not capture.gone() and folded(said) == place.table

        assert until(complete, PATIENCE), difference(folded(said), place.table)
        capture.kill()
        check(place, envelopes_of(capture.log, topic))


def kill_once(capture: Captured, random: Random) -> None:
    """A start that ends at some point of the writer, or at any moment."""
    if random.random() < 0.5:
        capture.start(die=random.choice([1, 2, 3, 5, 8]))
        assert until(capture.gone, PATIENCE)
    else:
        capture.start()
        points = random.choice([0, 0, 1, 3, 6])
        assert until(lambda: capture.points >= points or (capture.hear(0.05) and capture.points >= points), PATIENCE)
        capture.kill()


def change_of(record: Record) -> Said:
    key, after = orjson.loads(record.key)["id"], record.value["after"]
    return record.value["op"], key, after["v"] if after else None


def folded(records: list[Record]) -> Rows:
    rows: Rows = {}
    for _, key, value in map(change_of, records):
        if value is None:
            rows.pop(key, None)
        else:
            rows[key] = value
    return rows


def difference(here: Rows, there: Rows) -> dict[int, Any]:
    return {key: (here.get(key), there.get(key)) for key in here.keys() | there.keys() if here.get(key) != there.get(key)}


def check(place: Place, records: list[Record]) -> None:
    """What must hold besides that the topic folded is the table."""
    changes = list(map(change_of, records))
    if place.engine == "triggers":
        for session in place.sessions:
            mine = [each for each in changes if each[1] < FIRST and each[1] % SESSIONS == session.number and each[0] != "r"]
            assert mine == session.said
    told, there = set[int](), Rows()
    for op, key, value in changes:
        assert op != "r" or key not in told, f"{key} was copied although the topic had it"
        told.add(key)
        if place.engine == "poll":
            assert (key in there) == (op in "ud"), f"{op} of {key}, which is {'' if key in there else 'not '}there"
            assert op != "u" or there[key] != value, f"{key} was told twice"
        if value is None:
            there.pop(key, None)
        else:
            there[key] = value


@pytest.fixture(params=["postgres", "sqlite"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PostgresSchema | SqliteDatabase]:
    if request.param == "postgres":
        with postgres_schema(request.getfixturevalue("postgres")) as schema:
            yield schema
    else:
        with sqlite_file(tmp_path) as file:
            yield file


@pytest.mark.parametrize("engine", ["triggers", "poll"])
def test_a_capture_that_is_killed_tells_what_was_done(
    tmp_path: Path, database: PostgresSchema | SqliteDatabase, engine: str
) -> None:
    kill(tmp_path, database, engine, SEED, kills=3)


@pytest.mark.long
@pytest.mark.parametrize("engine", ["triggers", "poll"])
@pytest.mark.parametrize("seed", range(SEED, SEED + 2))
def test_a_capture_that_is_killed_again_and_again_tells_what_was_done(
    tmp_path: Path, database: PostgresSchema | SqliteDatabase, engine: str, seed: int
) -> None:
    kill(tmp_path, database, engine, seed, kills=60)


def kill(place: Path, database: PostgresSchema | SqliteDatabase, engine: str, seed: int, kills: int) -> None:
    print(f"PENSTOCK_SEED={seed}")
    made = Place(database, engine, place / "home", seed)
    try:
        kill_often(made, Random(seed), kills)
    finally:
        kind_of(engine).tear_down(made.definition)
    print(f"{made.changes()} changes")
