"""Random logs, and random ways to run a kernel over them: epochs, slices, buckets, a frontier that rises anyhow."""

import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from colliding import colliding
from penstock.core.columns import POSITION, TIME, WATERMARK
from penstock.core.position import Position
from penstock.core.time import FOREVER, NEVER, micros
from penstock.kernels.memory import MemoryRunner
from penstock.kernels.port import Kernel
from penstock.plan import Aggregate as Agg

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("x", pa.float64()), ("s", pa.string())])
TIMESTAMP = pa.timestamp("us", tz="UTC")
Order = tuple[int, bytes]
_EVERY_RUN = 1


class Row(NamedTuple):
    t: int
    k: str | None
    v: int | None
    x: float | None
    s: str | None
    W: int
    position: bytes

    @property
    def order(self) -> Order:
        return (self.t, self.position)

    @property
    def on_time(self) -> bool:
        return self.t >= self.W


@dataclass(frozen=True)
class Log:
    """Rows by partition, each with the watermark at it; and the watermark behind each row."""

    partitions: list[list[Row]]
    behind: list[list[int]]

    @property
    def rows(self) -> list[Row]:
        return [row for rows in self.partitions for row in rows]

    def frontier(self, read: list[int]) -> int:
        return min(marks[n] for marks, n in zip(self.behind, read, strict=True))


@dataclass
class Outcome:
    rows: list[dict[str, Any]] = field(default_factory=list)
    epochs: list[list[dict[str, Any]]] = field(default_factory=list)
    late: list[bytes] = field(default_factory=list)
    fates: Counter[str] = field(default_factory=Counter)
    frontier: int = NEVER


def blocks(count: int) -> list[Any]:
    """Numbers of blocks of seeds: a few for every run, all of them for the long one."""
    return [n if n < _EVERY_RUN else pytest.param(n, marks=pytest.mark.long) for n in range(count)]


KEYS = ("a", "a", "b", "c", None)


def colliding_keys() -> tuple[str | None, ...]:
    """Keys of one hash, and none."""
    return (*colliding(4), None)


def a_log(rng: random.Random, keys: tuple[str | None, ...] = KEYS) -> Log:
    """Times around a rising one, from before 1970 on, with ties, disorder, nulls, NaN and infinities."""
    lateness, partitions, behind = rng.randrange(5), [], []
    steps = rng.choice(((0, 0, 1), (0, 1, 2, 5), (0, 30)))
    for p in range(rng.choice((1, 2, 3))):
        now, mark, rows, marks = rng.randrange(-20, 5), NEVER, [], [NEVER]
        for offset in range(rng.choice((1, 3, 8, 20))):
            now += rng.choice(steps)
            if rng.random() < 0.1:
                mark = max(mark, now - rng.randrange(-3, 4))
            t = now - rng.choice((0, 0, 0, 1, 2, lateness, lateness + 1))
            rows.append(_row(rng, t, rng.choice(keys), mark, Position("topic", p, offset).encode()))
            mark = max(mark, t - lateness)
            marks.append(mark)
        partitions.append(rows)
        behind.append(marks)
    return Log(partitions, behind)


def _row(rng: random.Random, t: int, key: str | None, mark: int, position: bytes) -> Row:
    v = rng.choice((None, 2**62, -(2**62), 0, 1, 2, 3, 4))
    x = rng.choice((None, math.nan, math.inf, -math.inf, 2.0**900, -0.0, 0.25, 0.5, 0.75, 1.25, 2.0))
    return Row(t, key, v, x, rng.choice((None, "", "p", "q", "é")), mark, position)


def table(rows: list[Row]) -> pa.Table:
    columns: dict[str, pa.Array] = {f.name: pa.array([getattr(r, f.name) for r in rows], f.type) for f in SCHEMA}
    columns[TIME] = pa.array([r.t for r in rows], pa.int64())
    columns[WATERMARK] = pa.array([r.W for r in rows], pa.int64())
    columns[POSITION] = pa.array([r.position for r in rows], pa.binary())
    return pa.table(columns)


def run_anyhow(kernel: Kernel, log: Log, rng: random.Random, *, drain: bool) -> Outcome:
    """Some epochs, then what is left, then an empty epoch in which F is what the whole log allows, or the end of input."""
    out, read = Outcome(), [0] * len(log.partitions)
    runner = MemoryRunner(kernel, rng.choice((1, 2, 3)), fanout=rng.choice((2, 3, 8)))
    for _ in range(rng.randrange(8)):
        before = list(read)
        for p, rows in enumerate(log.partitions):
            read[p] = min(len(rows), read[p] + rng.choice((0, 1, 2, 5)))
        _epoch(out, runner, log, rng, before, read)
        if rng.random() < 0.2:
            runner.rebucket(rng.choice((1, 2, 4)))
    everything = [len(rows) for rows in log.partitions]
    _epoch(out, runner, log, rng, read, everything)
    out.frontier = FOREVER if drain else log.frontier(everything)
    _take(out, runner.epoch([[]], [out.frontier]))
    return out


def _epoch(out: Outcome, runner: MemoryRunner, log: Log, rng: random.Random, before: list[int], read: list[int]) -> None:
    rows = [r for rows, a, b in zip(log.partitions, before, read, strict=True) for r in rows[a:b]]
    rng.shuffle(rows)
    slices = rng.choice((1, 1, 2, 3))
    allowed = log.frontier(read)
    out.frontier = max(out.frontier, rng.choice((allowed, allowed, allowed - 1, allowed - rng.randrange(30), log.frontier(before))))
    _take(out, runner.epoch([[table(rows[i::slices]) for i in range(slices)]], [out.frontier]))


def _take(out: Outcome, ran: Any) -> None:
    out.epochs.append(ran.rows.to_pylist())
    out.rows += out.epochs[-1]
    out.fates += ran.fates
    if ran.late[0] is not None:
        out.late += ran.late[0][POSITION].to_pylist()


def in_one_epoch(kernel: Kernel, log: Log, *, drain: bool) -> Outcome:
    """One epoch over the whole log, and one empty epoch."""
    out, everything = Outcome(), [len(rows) for rows in log.partitions]
    runner = MemoryRunner(kernel)
    _take(out, runner.epoch([[table(log.rows)]], [NEVER]))
    out.frontier = FOREVER if drain else log.frontier(everything)
    _take(out, runner.epoch([[]], [out.frontier]))
    return out


def counted(rows: list[dict[str, Any]]) -> Counter[Any]:
    """Rows so that they can be compared in any order, NaN with NaN."""
    return Counter(tuple(sorted((name, _told(value)) for name, value in row.items())) for row in rows)


def _told(value: Any) -> str:
    if isinstance(value, datetime):
        return str(micros(value))
    return str(value + 0 if isinstance(value, float | Decimal) else value)


def fates_of(log: Log, late: str) -> Counter[str]:
    fates = Counter("on time" if r.on_time else {"divert": "diverted", "ignore": "ignored"}[late] for r in log.rows)
    return +fates


def diverted(log: Log, late: str) -> Counter[bytes]:
    return Counter(r.position for r in log.rows if not r.on_time and late == "divert")


def few_hashes(hash64: Callable[..., Any]) -> Callable[..., Any]:
    """A hash that many keys share."""
    return lambda columns, rows: hash64(columns, rows) >> 63 << 63


# The aggregates of SQL, as they are defined: over all values, without nulls.
def total(values: list[Any]) -> Any:
    return sum(values[1:], values[0]) if values else None


def least(values: list[Any]) -> Any:
    numbers = [v for v in values if v == v]
    return min(numbers) if numbers else next(iter(values), None)


def greatest(values: list[Any]) -> Any:
    return next((v for v in values if v != v), None) or (max(values) if values else None)


AGGREGATES = (
    Agg("n", "count", None, pa.int64()),
    Agg("known", "count", "v", pa.int64()),
    Agg("total", "sum", "v", pa.decimal128(38, 0)),
    Agg("low", "min", "v", pa.int64()),
    Agg("high", "max", "v", pa.int64()),
    Agg("xs", "sum", "x", pa.float64()),
    Agg("xlow", "min", "x", pa.float64()),
    Agg("xhigh", "max", "x", pa.float64()),
    Agg("slow", "min", "s", pa.string()),
    Agg("shigh", "max", "s", pa.string()),
)


def aggregated(rows: list[Row]) -> dict[str, Any]:
    """What AGGREGATES say of these rows."""
    v, x, s = ([value for r in rows if (value := getattr(r, name)) is not None] for name in "vxs")
    told = {"n": len(rows), "known": len(v), "total": total(v), "low": least(v), "high": greatest(v)}
    told |= {"xs": total(x), "xlow": least(x), "xhigh": greatest(x)}
    return told | {"slow": least(s), "shigh": greatest(s)}


# Aggregates that keep more than a few numbers.
OTHERS = (
    Agg("spread", "var", "v", pa.float64(), options=(0,)),
    Agg("first", "first", "s", pa.string(), options=(True,)),
    Agg("last", "last", "v", pa.int64(), options=(False,)),
    Agg("all", "collect", "v", pa.list_(pa.int64())),
    Agg("different", "distinct", "s", pa.int64()),
    Agg("best", "top", "v", pa.list_(pa.int64()), ("s",), (2,)),
)


def otherwise(rows: list[Row]) -> dict[str, Any]:
    """What OTHERS say of these rows."""
    rows = sorted(rows, key=lambda r: r.order)
    v = [r.v for r in rows if r.v is not None]
    best = sorted((r for r in rows if r.s is not None), key=lambda r: r.s.encode(), reverse=True)  # type: ignore[union-attr]
    return {
        "spread": float(sum((x - Fraction(sum(v), len(v))) ** 2 for x in v) / len(v)) if v else None,
        "first": rows[0].s,
        "last": v[-1] if v else None,
        "all": v,
        "different": len({r.s for r in rows} - {None}),
        "best": [r.v for r in best[:2]],
    }
