"""Streams, versions of a table, random ways to cut them into epochs, and enrich by its definition."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

from colliding import colliding
from penstock import plan
from penstock.core.change import Op
from penstock.core.columns import APPEND_TIME, OP, POSITION, TIME, WATERMARK
from penstock.core.position import Position
from penstock.core.time import FOREVER, NEVER, moment
from penstock.kernels.asof.enrich import EnrichKernel
from penstock.kernels.memory import MemoryRunner
from penstock.kernels.port import Kernel
from penstock.kernels.waiting_rows import WaitingRows
from unit.kernels.cutting import TIMESTAMP, Outcome, counted
from unit.kernels.sending import folded

STREAM = pa.schema([("k", pa.string()), ("x", pa.float64()), ("v", pa.int64())])
TABLE = pa.schema([("key", pa.string()), ("kx", pa.float64()), ("v", pa.int64()), ("name", pa.string())])
OUTPUT = pa.schema([*STREAM, ("table_v", pa.int64()), ("name", pa.string()), ("since", TIMESTAMP), ("place", pa.string())])
MICRO = timedelta(microseconds=1)
PLAIN = plan.Enrich(("k",), ("key",), "left", "event", (("table_v", "v"), ("name", "name")), version=("since", "place"))


class Row(NamedTuple):
    t: int
    k: str | None = "a"
    x: float | None = 0.0
    app: int = 0
    W: int = NEVER
    number: int = 0

    @property
    def position(self) -> bytes:
        return Position("stream", 0, self.number).encode()


class Version(NamedTuple):
    t: int
    k: str | None = "a"
    x: float | None = 0.0
    v: int | None = 1  # None: a delete
    app: int = 0
    number: int = 0
    partition: int = 0

    @property
    def place(self) -> Position:
        return Position("users", self.partition, self.number)


@dataclass(frozen=True)
class Epoch:
    rows: Sequence[Row] = ()
    versions: Sequence[Version] = ()
    frontier: int = NEVER
    mark: int = NEVER
    slices: int = 1
    lost: bool = False
    buckets: int = 1


def rows_table(rows: Sequence[Row]) -> pa.Table:
    columns = {"k": [r.k for r in rows], "x": [r.x for r in rows], "v": [r.number for r in rows]}
    columns |= {TIME: [r.t for r in rows], WATERMARK: [r.W for r in rows], POSITION: [r.position for r in rows]}
    types = pa.schema([*STREAM, (TIME, pa.int64()), (WATERMARK, pa.int64()), (POSITION, pa.binary()), (APPEND_TIME, pa.int64())])
    return pa.table(columns | {APPEND_TIME: [r.app for r in rows]}, schema=types)


def versions_table(given: Sequence[Version]) -> pa.Table:
    columns: dict[str, list[Any]] = {"key": [v.k for v in given], "kx": [v.x for v in given], "v": [v.v for v in given]}
    columns |= {"name": [None if v.v is None else f"name {v.v}" for v in given], TIME: [v.t for v in given]}
    columns |= {POSITION: [v.place.encode() for v in given], APPEND_TIME: [v.app for v in given]}
    columns[OP] = [Op.DELETE if v.v is None else Op.INSERT for v in given]
    system = [(TIME, pa.int64()), (POSITION, pa.binary()), (APPEND_TIME, pa.int64()), (OP, pa.int8())]
    return pa.table(columns, schema=pa.schema([*TABLE, *system]))


def kernel(definition: plan.Enrich = PLAIN, width: int = 2) -> EnrichKernel:
    wait = 0 if definition.wait is None else definition.wait // MICRO
    return EnrichKernel(definition, STREAM, TABLE, OUTPUT, held=WaitingRows("held", wait, width, 2), slot_us=width)


def ran(made: Kernel, epochs: Sequence[Epoch], fanout: int = 2) -> Outcome:
    runner, out = MemoryRunner(made, fanout=fanout), Outcome()
    for epoch in epochs:
        runner.rebucket(epoch.buckets)
        given = [sliced(rows_table(epoch.rows), epoch.slices), sliced(versions_table(epoch.versions), epoch.slices)]
        if epoch.lost:
            runner.run(given, [epoch.frontier, NEVER], FOREVER)
        done = runner.run(given, [epoch.frontier, NEVER], epoch.mark)
        runner.commit(done)
        out.epochs.append(done.rows.to_pylist())
        out.rows += out.epochs[-1]
        out.fates.update(done.fates)
    return out


def sliced(table: pa.Table, slices: int) -> list[pa.Table]:
    size = max(1, -(-table.num_rows // slices))
    return [table.slice(at, size) for at in range(0, table.num_rows, size)]


@dataclass
class Specification:
    """By the definition: all rows, all versions with the mark at each, the frontier at the end."""

    definition: plan.Enrich
    rows: list[Row] = field(default_factory=list)
    versions: list[tuple[Version, int]] = field(default_factory=list)
    frontier: int = NEVER
    mark: int = NEVER

    def take(self, epoch: Epoch) -> None:
        self.mark = max(self.mark, epoch.mark)
        self.versions += [(v, self.mark) for v in epoch.versions]
        self.rows += epoch.rows
        self.frontier = epoch.frontier
        self.mark = max([self.mark, *(self.clock(r) + 1 for r in self.rows if self.ready(r))])

    def clock(self, of: Row | Version) -> int:
        return of.t if self.definition.as_of == "event" else of.app

    def ready(self, r: Row) -> bool:
        return self.definition.wait is None or self.frontier > r.t + self.definition.wait // MICRO

    def answer(self, r: Row) -> Version | None:
        allowed = self.definition.allowed // MICRO if self.definition.correct else 0
        mine = [(v, M) for v, M in self.versions if self.same_key(r, v)]
        seen = [v for v, M in mine if self.clock(r) >= max(self.clock(v), M - allowed)]
        best = max(seen, key=lambda v: (self.clock(v), v.t, v.place), default=None)
        return None if best is None or best.v is None or self.too_old(r) else best

    def same_key(self, r: Row, v: Version) -> bool:
        pairs = [(r.k, v.k), (r.x, v.x)][: len(self.definition.on)]
        return all(a is not None and b is not None and (a == b or (a != a and b != b)) for a, b in pairs)

    def too_old(self, r: Row) -> bool:
        return self.definition.history is not None and r.t < r.W - self.definition.history // MICRO

    def fate(self, r: Row) -> str:
        if not self.ready(r):
            return "held"
        if self.too_old(r):
            return "too old"
        return "unmatched" if self.definition.how == "inner" and self.answer(r) is None else "answered"

    def shown(self, r: Row) -> dict[str, Any]:
        v = self.answer(r)
        told = {"k": r.k, "x": r.x, "v": r.number, "table_v": v and v.v, "name": v and f"name {v.v}"}
        told |= {"since": v and moment(v.t), "place": v and str(v.place)}
        return told | {TIME: r.t, WATERMARK: r.W, POSITION: r.position, APPEND_TIME: r.app}

    def output(self) -> list[dict[str, Any]]:
        ready = [r for r in self.rows if self.ready(r)]
        return [self.shown(r) for r in ready if self.definition.how == "left" or self.answer(r) is not None]

    def fates(self) -> Counter[str]:
        return Counter(map(self.fate, self.rows)) + Counter(version=len(self.versions))


def specified(definition: plan.Enrich, epochs: Sequence[Epoch]) -> Specification:
    made = Specification(definition)
    for epoch in epochs:
        made.take(epoch)
    return made


VALUES = st.sampled_from([None, 1, 2, 3])
DOUBLES = st.sampled_from([0.0, 0.0, -0.0, math.nan, 1.5, None])
SLICES = st.sampled_from([1, 1, 2, 3])
SPANS = st.sampled_from([0, 1, 2, 4, 9, 10**14])
# Many keys and times; or one key and few instants, where ties with horizons and marks are the rule.
WIDE = (st.sampled_from(["a", "a", "a", "b", "c", None]), st.integers(-6, 20), range(-4, 24, 3))
COLLIDING = (st.sampled_from([*colliding(3), None]), st.integers(-6, 20), range(-4, 24, 3))
TIGHT = (st.just("a"), st.integers(0, 5), range(8))


@st.composite
def some_epochs(draw: st.DrawFn, styles: Sequence[Any] = (WIDE, TIGHT)) -> list[Epoch]:
    """Rows that come have t >= F or W >= F, by the frontier of the epoch before; everything else is as it may be."""
    keys, times, frontiers = draw(st.sampled_from(styles))
    row = st.tuples(times, keys, DOUBLES, times, st.sampled_from([None, 0, 1, 3, -2]))
    version = st.tuples(times, keys, DOUBLES, VALUES, times, st.integers(0, 1))
    epochs: list[Epoch] = []
    frontier, rows, places = NEVER, 0, [0, 0]
    for _ in range(draw(st.integers(1, 6))):
        some, known = [], []
        for t, k, x, app, ahead in draw(st.lists(row, max_size=6)):
            least = NEVER if t >= frontier else frontier
            some.append(Row(t, k, x, app, least if ahead is None else max(least, t + ahead), rows))
            rows += 1
        for t, k, x, v, app, p in draw(st.lists(version, max_size=6)):
            known.append(Version(t, k, x, v, app, places[p], p))
            places[p] += 1
        frontier = max(frontier, draw(st.sampled_from([NEVER, frontier, *frontiers])))
        lost = draw(st.integers(0, 9)) == 0
        epochs.append(Epoch(some, known, frontier, slices=draw(SLICES), lost=lost, buckets=draw(st.integers(1, 3))))
    if draw(st.integers(0, 3)) == 0:
        return [*epochs, Epoch(frontier=FOREVER, mark=FOREVER)]
    return epochs


@st.composite
def definitions(draw: st.DrawFn) -> plan.Enrich:
    two, history, wait = draw(st.booleans()), draw(st.one_of(st.none(), SPANS)), draw(st.one_of(st.none(), SPANS))
    return replace(
        PLAIN,
        on=("k", "x") if two else ("k",),
        key=("key", "kx") if two else ("key",),
        how=draw(st.sampled_from(["left", "inner"])),
        as_of=draw(st.sampled_from(["event", "event", "now"])),
        correct=draw(st.booleans()),
        allowed=draw(SPANS) * MICRO,
        wait=None if wait is None else wait * MICRO,
        history=None if history is None else history * MICRO,
    )


def holds(made: Kernel, definition: plan.Enrich, epochs: Sequence[Epoch], fanout: int = 2) -> None:
    out, wanted = ran(made, epochs, fanout), specified(definition, epochs)
    rows = folded(out, [POSITION]) if definition.correct else out.rows
    assert counted(rows) == counted(wanted.output())
    assert Counter({fate: n for fate, n in out.fates.items() if n}) == wanted.fates()


def told(rows: pa.Table) -> list[tuple[int, Any]]:
    return sorted((r[TIME], r["table_v"]) for r in rows.to_pylist())


def epoch_of(runner: MemoryRunner, rows: Sequence[Row] = (), given: Sequence[Version] = (), frontier: int = NEVER) -> Any:
    return runner.epoch([[rows_table(rows)], [versions_table(given)]], [frontier, NEVER])
