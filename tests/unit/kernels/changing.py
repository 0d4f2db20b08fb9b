"""Tables that change, as kernels see them: epochs of net changes, cut anyhow; and what an updating step made of them, folded."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from penstock.core.change import Op
from penstock.core.columns import OP, POSITION, TIME, WATERMARK
from penstock.core.position import Position
from penstock.core.time import NEVER
from penstock.kernels.memory import MemoryRunner, Ran
from penstock.kernels.port import Kernel, Prepared, State, Stepped

Row = dict[str, Any]
Edit = tuple[int, Row | None]  # the name of a row, and what it is from now on


@dataclass(frozen=True)
class Epoch:
    edits: tuple[tuple[Edit, ...], ...]  # per table
    slices: int
    buckets: int
    lost: bool  # it is run once before without being committed
    reverse: bool  # rows come in the other order


def epochs(*rows: st.SearchStrategy[Row], names: int = 5, most: int = 6) -> st.SearchStrategy[list[Epoch]]:
    """Epochs over so many tables; rows: what a row of each may be."""
    edits = [st.lists(st.tuples(st.integers(0, names - 1), st.none() | one), max_size=5).map(tuple) for one in rows]
    few = st.integers(1, 3)
    return st.lists(st.builds(Epoch, st.tuples(*edits), few, few, st.booleans(), st.booleans()), min_size=1, max_size=most)


def many_epochs(rng: random.Random, count: int, *rows: Callable[[random.Random], Row]) -> list[Epoch]:
    """A long run of small epochs: rows go, and what was merged before and after must still agree on it."""

    def edits(row: Callable[[random.Random], Row]) -> tuple[Edit, ...]:
        return tuple((rng.randrange(8), rng.choice((None, row(rng)))) for _ in range(rng.randrange(3)))

    return [Epoch(tuple(map(edits, rows)), 1, 1, False, False) for _ in range(count)]


@dataclass
class Table:
    """A table by the names of its rows. A condition above hides rows: only the halves of changes that pass it are seen."""

    topic: str
    schema: pa.Schema  # with the column "id"
    hidden: Any = None  # (column, value): rows with it are not seen
    rows: dict[int, Row] = field(default_factory=dict)
    versions: int = 0

    def edit(self, edits: Iterable[Edit]) -> pa.Table:
        """The net changes."""
        before = dict(self.rows)
        for name, row in edits:
            self.versions += 1
            if row is None:
                self.rows.pop(name, None)
            else:
                self.rows[name] = {"id": name} | row | {POSITION: Position(self.topic, 0, self.versions).encode()}
        return self.changes([c for name in {*before, *self.rows} for c in self._change(before.get(name), self.rows.get(name))])

    def shown(self) -> list[Row]:
        return [row for row in self.rows.values() if self._seen(row)]

    def _seen(self, row: Row) -> bool:
        return self.hidden is None or row[self.hidden[0]] != self.hidden[1]

    def _change(self, before: Row | None, after: Row | None) -> list[tuple[Op, Row]]:
        if before == after:
            return []
        ops = (Op.DELETE, Op.INSERT) if before is None or after is None else (Op.UPDATE_BEFORE, Op.UPDATE_AFTER)
        return [(op, row) for op, row in zip(ops, (before, after), strict=True) if row is not None and self._seen(row)]

    def changes(self, changes: Sequence[tuple[Op, Row]]) -> pa.Table:
        columns: dict[str, Any] = {f.name: pa.array([row[f.name] for _, row in changes], f.type) for f in self.schema}
        columns[TIME] = pa.array([row[TIME] for _, row in changes], pa.int64())
        columns[WATERMARK] = pa.array([NEVER] * len(changes), pa.int64())
        columns[POSITION] = pa.array([row[POSITION] for _, row in changes], pa.binary())
        return pa.table(columns | {OP: pa.array([op for op, _ in changes], pa.int8())})


class Watched:
    """A kernel, and what its buckets gave in the last epoch."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.gives_position, self.told = kernel, kernel.gives_position, list[pa.Table]()
        self.merge, self.frontier, self.open_rows = kernel.merge, kernel.frontier, kernel.open_rows

    @property
    def needs_position(self) -> Any:
        return self.kernel.needs_position

    def prepare(self, port: int, rows: pa.Table) -> Prepared:
        return self.kernel.prepare(port, rows)

    def step(self, state: State, rows: Sequence[pa.Table | None], frontiers: Sequence[int]) -> Stepped:
        stepped = self.kernel.step(state, rows, frontiers)
        self.told.append(stepped.rows)
        return stepped


class Running:
    """A kernel over epochs of changes, its state in memory, and what is shown of what it sent."""

    def __init__(self, kernel: Kernel, key: Sequence[str], fanout: int) -> None:
        self.watched, self.key, self.shown = Watched(kernel), tuple(key), dict[Any, Row]()
        self.runner = MemoryRunner(self.watched, fanout=fanout)

    def epoch(self, inputs: Sequence[pa.Table], how: Epoch) -> pa.Table:
        """Runs an epoch and folds what it gave; what must hold of changes is asserted on the way."""
        self.runner.rebucket(how.buckets)
        slices = [sliced(reversed_(table) if how.reverse else table, how.slices) for table in inputs]
        if how.lost:
            self.runner.run(slices, [0] * len(inputs))
        self.watched.told.clear()
        ran: Ran = self.runner.epoch(slices, [0] * len(inputs))
        assert ran.fates["passed"] == sum(table.num_rows for table in inputs)
        told = [table.to_pylist() for table in self.watched.told]
        for bucket in told:
            self._hold(bucket)
        self._fold([row for bucket in told for row in bucket])
        return ran.rows

    def _hold(self, changes: list[Row]) -> None:
        """One net change a key and bucket at most, deletes first, and none that changes nothing."""
        ops = [Op(c[OP]) for c in changes]
        assert ops == sorted(ops, key=[Op.DELETE, Op.UPDATE_BEFORE, Op.UPDATE_AFTER, Op.INSERT].index)
        before = {self._name(c): plain(c) for c in changes if c[OP] in (Op.DELETE, Op.UPDATE_BEFORE)}
        after = {self._name(c): plain(c) for c in changes if c[OP] in (Op.INSERT, Op.UPDATE_AFTER)}
        assert len(before) + len(after) == len(changes)
        updated = {self._name(c) for c in changes if c[OP] == Op.UPDATE_BEFORE}
        assert updated == before.keys() & after.keys()
        assert all(before[name] != after[name] for name in updated)

    def _fold(self, changes: list[Row]) -> None:
        for c in changes:
            if c[OP] in (Op.DELETE, Op.UPDATE_BEFORE):
                assert self.shown.pop(self._name(c)) == plain(c), "what is taken back is not what was sent last"
        for c in changes:
            if c[OP] in (Op.INSERT, Op.UPDATE_AFTER):
                assert self._name(c) not in self.shown, "sent again without being taken back"
                self.shown[self._name(c)] = plain(c)

    def _name(self, change: Row) -> Any:
        return tuple(told(change[name]) for name in self.key)


def plain(row: Mapping[str, Any]) -> Row:
    """A row without its op, so that it can be compared: NaN with NaN, -0.0 with 0.0."""
    return {name: told(value) for name, value in row.items() if name != OP}


def told(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(told, value))
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    return value


def sliced(table: pa.Table, slices: int) -> list[pa.Table]:
    size = max(-(-table.num_rows // slices), 1)
    return [table.slice(at, size) for at in range(0, table.num_rows, size)]


def reversed_(table: pa.Table) -> pa.Table:
    return table.take(pa.array(range(table.num_rows - 1, -1, -1), pa.int64()))
