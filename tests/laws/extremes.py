"""Every aggregate over values at the edge of their types, in every step that aggregates."""

import math
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from penstock import Count, Flow, Hopping, Session, Sliding, Tumbling, agg
from penstock.flow.steps.aggregates import Agg
from penstock.flow.stream import Stream

from .reference import aggregates as naive

START = datetime(2024, 1, 15, 10, tzinfo=UTC)
NAN, INF = math.nan, math.inf
LONGEST, WIDEST = 2**63 - 1, 10**38 - 1
TYPES: dict[str, tuple[str, list[Any]]] = {
    "d": ("double", [NAN, INF, -INF, -0.0, 0.0, 1.0, -2.0, 3.0, None]),
    "f": ("float", [NAN, INF, -INF, -0.0, 0.0, 1.0, -2.0, 0.5, None]),
    "l": ("long", [LONGEST, 2**62, -(2**62), -LONGEST - 1, 0, 1, -1, None]),
    "i": ("int", [2**31 - 1, -(2**31), 0, 7, None]),
    "x": ("decimal(18, 2)", [Decimal("9999999999999999.99"), Decimal("-9999999999999999.99"), Decimal("0.01"), None]),
    "w": ("decimal(38, 0)", [Decimal(WIDEST), Decimal(-WIDEST), Decimal(5 * 10**37), Decimal(1), None]),
    "b": ("boolean", [True, False, None]),
}
SCHEMA = ", ".join(["g long", "z double", "id long", *(f"{name} {kind}" for name, (kind, _) in TYPES.items()), "at timestamp"])
NUMBERS, WHOLE, FLOATING = "dflixw", "lixw", "df"
ZEROS = [0.0, -0.0]  # one key
FITS: dict[str, Callable[[Any], bool]] = {
    "d": lambda v: True,
    "f": lambda v: True,
    "l": lambda v: -LONGEST - 1 <= v <= LONGEST,
    "i": lambda v: -LONGEST - 1 <= v <= LONGEST,
    "x": lambda v: True,
    "w": lambda v: -WIDEST <= v <= WIDEST,
}
Row = dict[str, Any]

# function -> the aggregates of it that are tried, by the name of their column
AGGREGATES: dict[str, dict[str, Agg]] = {
    "count": {"count": agg.count(), **{f"count_{c}": agg.count(c) for c in TYPES}},
    "sum": {f"sum_{c}": agg.sum(c) for c in NUMBERS},
    "avg": {f"avg_{c}": agg.avg(c) for c in NUMBERS},
    "min": {f"min_{c}": agg.min(c) for c in NUMBERS},
    "max": {f"max_{c}": agg.max(c) for c in NUMBERS},
    "var": {f"var_{c}_{off}": agg.var(c, population=not off) for c in NUMBERS for off in (0, 1)},
    "stddev": {f"stddev_{c}_{off}": agg.stddev(c, population=not off) for c in NUMBERS for off in (0, 1)},
    "first": {f"first_{c}": agg.first(c, skip_nulls=c in "dl") for c in TYPES},
    "last": {f"last_{c}": agg.last(c, skip_nulls=c in "dl") for c in TYPES},
    "collect": {f"collect_{c}": agg.collect(c) for c in TYPES},
    "distinct": {f"distinct_{c}": agg.distinct(c, approx=c in "fi") for c in TYPES},
    "quantile": {f"quantile_{c}": agg.quantile(c, 0.5) for c in NUMBERS},
    "top": {f"top_{c}": agg.top(2, c) for c in NUMBERS} | {"top_by": agg.top(2, "l", by="d")},
    "ratio": {"ratio": agg.ratio("b")},
    "count_if": {"count_if": agg.count_if("b")},
    "rate": {"rate": agg.rate()},
    "own": {"own": agg.own("d", init=lambda: 0, add=lambda n, rows: n + rows.num_rows, merge=lambda a, b: a + b, type="long")},
}


def all_aggregates(lasting: bool) -> dict[str, Agg]:
    return {name: a for function, some in AGGREGATES.items() if lasting or function != "rate" for name, a in some.items()}


def windowed(layout: Any, **more: Any) -> Callable[[Stream], Stream]:
    def build(rows: Stream) -> Stream:
        lasting = not isinstance(layout, Count)
        return rows.window(layout, by=("g", "z"), **more).agg(**all_aggregates(lasting), name="told")

    return build


STEPS: dict[str, Callable[[Stream], Stream]] = {
    "tumbling": windowed(Tumbling("1 minute")),
    "hopping": windowed(Hopping("1 minute", every="30 seconds")),
    "changing": windowed(Tumbling("1 minute"), emit="updates"),
    "session": windowed(Session(gap="10 seconds")),
    "sliding": windowed(Sliding("1 minute")),
    "count": windowed(Count(3)),
    "running": lambda rows: rows.group_by("g", "z").agg(**all_aggregates(False)),
    "running for a while": lambda rows: rows.group_by("g", "z", keep="1 hour").agg(**all_aggregates(False)),
    "over a table": lambda rows: rows.latest(by="id").group_by("g", "z").agg(**all_aggregates(False)),
    "sums over a table": lambda rows: (
        rows.latest(by="id").group_by("g", "z").agg(n=agg.count(), **{f"sum_{c}": agg.sum(c) for c in WHOLE})
    ),
    "over the last rows": lambda rows: rows.last("1 hour").group_by("g", "z").agg(**all_aggregates(False)),
}


PASSING = ("over the last rows", "running for a while")  # at the end of time nothing is left of them


def rows_of(seed: int, groups: int, most: int) -> list[Row]:
    """Rows of groups, the first of each, then the second of each …"""
    rng = random.Random(seed)
    sizes = [rng.randint(1, most) for _ in range(groups)]
    return [
        {"g": g, "z": rng.choice(ZEROS if g % 4 else [NAN]), "id": g * most + n, "at": START + timedelta(seconds=n)}
        | {name: rng.choice(values) for name, (_, values) in TYPES.items()}
        for n in range(most)
        for g in range(groups)
        if n < sizes[g]
    ]


def run(step: str, rounds: list[list[Row]]) -> list[Row]:
    """What a step tells in the end, an epoch for each of the rounds."""
    flow = Flow("extremes")
    STEPS[step](flow.stream("rows", SCHEMA, time="at", lateness="1 hour")).view("told")
    with flow.test() as t:
        for rows in rounds:
            t.send("rows", *rows)
            t.epoch()
        t.catch_up() if step in PASSING else t.end()
        return t.rows("told")


def told(rows: list[Row]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The rows by what names them, with values that can be compared: NaN is NaN, and -0.0 is not 0.0."""
    names = [n for n in ("g", "window_start", "window_end") if rows and n in rows[0]]
    out: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        key = tuple(row[n] for n in names)
        while key in out:  # a sliding step tells each row
            key = (*key, 1)
        out[key] = {n: comparable(n, v) for n, v in row.items() if not n.startswith("__")}
    return out


def comparable(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [comparable(name, v) for v in value]
    if not isinstance(value, float):
        return value
    if name.startswith(("var", "stddev")) and math.isfinite(value):
        return f"{value:.9g}"  # the last digits of doubles are not promised
    return repr(value)


def expected(rows: list[Row]) -> Iterator[tuple[str, Any]]:
    """The aggregates over all rows of a group by their definition."""
    for c in NUMBERS:
        values = [row[c] for row in rows if row[c] is not None]
        yield f"count_{c}", len(values)
        yield f"sum_{c}", naive.total(values, FITS[c])
        yield f"min_{c}", naive.least(values)
        yield f"max_{c}", naive.greatest(values)
        if c in "dfli":
            yield f"avg_{c}", naive.mean(values)
        for off in (0, 1):
            spread = naive.variance(values, off)
            yield f"var_{c}_{off}", spread
            yield f"stddev_{c}_{off}", None if spread is None else math.sqrt(spread)
