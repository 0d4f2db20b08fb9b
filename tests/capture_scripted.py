"""An engine that follows a list: transactions that a test has written down. It makes any batch again by its intent, is cut off when
told to, and sends the same list in other batches after each start."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import orjson
import pyarrow as pa

from penstock.capture.port import CREATE, DELETE, READ, UPDATE, Batch, Changes, Json, Status, Table, TableFacts, Transactions
from penstock.capture.port import Truncate as PortTruncate
from penstock.errors import Disconnected

USERS, ORDERS, ITEMS = ("public", "users"), ("public", "orders"), ("public", "items")
TABLES = (USERS, ORDERS, ITEMS)
FACTS = TableFacts("id long, v string", ("id",))
KEYS = 8

Place = tuple[int, int]  # so many whole transactions, so many steps of the next one


@dataclass(frozen=True)
class Write:
    table: Table
    op: int
    key: int
    value: str  # of a delete: what was there


@dataclass(frozen=True)
class Truncate:
    table: Table


@dataclass(frozen=True)
class Work:
    """One transaction."""

    id: str
    steps: tuple[Write | Truncate, ...]


Script = Sequence[Work]


def random_script(random: Random, transactions: int, truncates: float = 0.08, longest: int = 6) -> list[Work]:
    """Copies of the tables, then transactions over all of them, that fit each other."""
    live: dict[Table, dict[int, str]] = {table: {} for table in TABLES}
    return [*_copies(live), *(_work(random, number, live, truncates, longest) for number in range(transactions))]


def _copies(live: dict[Table, dict[int, str]]) -> Iterator[Work]:
    for table in TABLES:
        live[table] |= {key: f"copy {key}" for key in range(3)}
        yield Work(f"snapshot:{table[1]}", tuple(Write(table, READ, key, value) for key, value in live[table].items()))


def _work(random: Random, number: int, live: dict[Table, dict[int, str]], truncates: float, longest: int) -> Work:
    steps: list[Write | Truncate] = []
    for step in range(random.randint(1, longest)):
        table, key = random.choice(TABLES), random.randrange(KEYS)
        rows, value = live[table], f"{number}.{step}"
        if random.random() < truncates:
            rows.clear()
            steps.append(Truncate(table))
        elif key in rows and random.random() < 0.4:
            steps.append(Write(table, DELETE, key, rows.pop(key)))
        else:
            steps.append(Write(table, UPDATE if key in rows else CREATE, key, value))
            rows[key] = value
    return Work(f"{700 + number}:{1000 + 10 * number}", tuple(steps))


class ScriptedEngine:
    """The port over a script. random: how it is cut into batches; parts: also inside of transactions. cut_off: the calls of `next`
    at which the database is away. Says that it has caught up at the end of the script."""

    connector, database = "scripted", "script"

    def __init__(self, script: Script, random: Random, parts: bool = True, cut_off: Sequence[int] = ()) -> None:
        self.script, self.random, self.parts, self.cut_off = script, random, parts, list(cut_off)
        self.at: Place = (0, 0)
        self.confirmed: list[Json] = []
        self.starts = self.asked = 0
        self.again: Json | None = None

    def start(self, position: Json | None, unfinished: Json | None) -> None:
        self.starts += 1
        self.at = (position["done"], position["steps"]) if position else (0, 0)
        self.again = unfinished

    def next(self, wait: float) -> Batch | None:
        self.asked += 1
        if self.asked in self.cut_off:
            raise Disconnected("the script is away")
        if self.again:
            start, stop = tuple(self.again["from"]), tuple(self.again["upto"])
            assert start == self.at, "the intent is not the one behind the position"
            self.again = None
        elif self.at == (len(self.script), 0):
            return None
        else:
            start, stop = self.at, self._stop()
        self.at = stop
        return batch_of(self.script, start, stop)

    def written(self, position: Json) -> None:
        self.confirmed.append(position)

    def status(self) -> Status:
        return Status(caught_up=self.at == (len(self.script), 0) and not self.again)

    def close(self) -> None:
        return None

    def _stop(self) -> Place:
        done, steps = self.at
        left = len(self.script[done].steps) - steps
        if self.parts and left > 1 and self.random.random() < 0.4:
            return done, steps + self.random.randrange(1, left)
        whole = min(len(self.script), done + self.random.choice([1, 1, 2, 4]))
        if self.parts and whole < len(self.script) and self.random.random() < 0.3 and len(self.script[whole].steps) > 1:
            return whole, self.random.randrange(1, len(self.script[whole].steps))
        return whole, 0


def batch_of(script: Script, start: Place, stop: Place) -> Batch:
    """What the script has between two places."""
    last = stop[0] + (stop[1] > 0)
    works = script[start[0] : last]
    begins, ends = np.ones(len(works), np.bool_), np.ones(len(works), np.bool_)
    begins[0], ends[-1] = not start[1], not stop[1]
    numbers = np.arange(start[0], last)
    xids = np.array([-1 if work.id.startswith("snapshot") else int(work.id.split(":")[0]) for work in works])
    transactions = Transactions(
        pa.array([work.id for work in works], pa.utf8()), xids, 1000 + 10 * numbers, 10**6 * numbers, begins, ends
    )
    steps = [(n, i, step) for n, work in enumerate(works) for i, step in enumerate(work.steps) if _inside(n, i, start, stop)]
    writes = [(n, i, step) for n, i, step in steps if isinstance(step, Write)]
    changes = [_changes(table, [each for each in writes if each[2].table == table]) for table in TABLES]
    truncates = [PortTruncate(step.table, n, i) for n, i, step in steps if isinstance(step, Truncate)]
    tables = {each.table: FACTS for each in changes if len(each)}
    intent, position = {"from": list(start), "upto": list(stop)}, {"done": stop[0], "steps": stop[1]}
    return Batch(intent, position, transactions, [each for each in changes if len(each)], truncates, tables)


def _inside(number: int, step: int, start: Place, stop: Place) -> bool:
    return start <= (start[0] + number, step) < stop


def _changes(table: Table, writes: Sequence[tuple[int, int, Write]]) -> Changes:
    def rows(there: list[bool]) -> pa.Array:
        return pa.array([row_text(w) if yes else None for (_, _, w), yes in zip(writes, there, strict=True)], pa.utf8())

    gone = [w.op == DELETE for _, _, w in writes]
    keys = pa.array([key_text(w.key) for _, _, w in writes], pa.utf8())
    places = np.array([n for n, _, _ in writes], np.int64), np.array([i for _, i, _ in writes], np.int64)
    ops = np.array([w.op for _, _, w in writes], np.uint8)
    return Changes(table, ops, keys, rows(gone), rows([not each for each in gone]), *places)


def key_text(key: int) -> str:
    return orjson.dumps({"id": key}).decode()


def row_text(write: Write) -> str:
    return orjson.dumps({"id": write.key, "v": write.value}).decode()
