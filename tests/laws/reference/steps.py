"""Every step by its definition: from all rows, the watermark each had, and the frontier at the end."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, ClassVar

from .values import FOREVER, NEVER, Row, order, settle


@dataclass(frozen=True)
class Where:
    """Keeps rows whose key is there and not c."""


@dataclass(frozen=True)
class Slim:
    """Whatever the value is, it becomes one integer."""


@dataclass(frozen=True)
class Union:
    pass


@dataclass(frozen=True)
class Window:
    size: int
    late: str = "divert"
    every_aggregate: bool = False  # else the number of rows, the sum of val and, where rows change, the revision
    every: int = 0  # 0: side by side
    offset: int = 0
    allowed: int = 0
    emit: str = "final"

    @property
    def updating(self) -> bool:
        return self.late == "correct" or self.emit == "updates"

    @property
    def overlaps(self) -> bool:
        return 0 < self.every < self.size

    def starts(self, t: int) -> list[int]:
        """Every window that holds this time."""
        every = self.every or self.size
        return [s for s in range(t - self.size + 1, t + 1) if (s - self.offset) % every == 0]


@dataclass(frozen=True)
class Session:
    gap: int
    longest: int | None = None
    late: str = "divert"
    allowed: int = 0
    emit: str = "final"

    @property
    def updating(self) -> bool:
        return self.late == "correct" or self.emit == "updates"


@dataclass(frozen=True)
class Running:
    keep: int | None = None
    updating: ClassVar[bool] = True


@dataclass(frozen=True)
class Sliding:
    size: int
    late: str = "divert"


@dataclass(frozen=True)
class Count:
    rows: int
    late: str = "divert"


@dataclass(frozen=True)
class Alert:
    """Fires at values of 2, 5, …, and is resolved by 0, 3, …"""

    every: int | None = None
    late: str = "divert"


@dataclass(frozen=True)
class AlertTable:
    """The same over sums that change."""

    over: Window | Session | Running  # what changes
    every: int | None = None  # what is told of it, so often at most
    updating: ClassVar[bool] = True


@dataclass(frozen=True)
class Told:
    """What is told of such a table, to actions."""

    over: Window | Session | Running
    every: int | None = None


@dataclass(frozen=True)
class Join:
    lo: int
    hi: int
    how: str = "inner"
    late: str = "divert"
    where: str | None = None  # the name of a condition

    @property
    def held(self) -> int:
        """How long a row may be held before it comes out under its own time."""
        left, right = max(self.hi, 0), max(-self.lo, 0)
        return {"inner": 0, "right": right, "full": max(left, right)}.get(self.how, left)


@dataclass(frozen=True)
class Enrich:
    as_of: str = "event"
    how: str = "left"
    allowed: int | None = None  # None: answers stay as they are; else they are corrected
    wait: int | None = None
    history: int | None = None

    @property
    def updating(self) -> bool:
        return self.allowed is not None


Step = Where | Slim | Union | Window | Session | Running | Sliding | Count | Alert | AlertTable | Told | Join | Enrich


@dataclass
class Result:
    rows: list[Row]
    late: list[Row] = field(default_factory=list)
    fates: Counter[str] | None = field(default_factory=Counter)  # None: they count changes, and nobody promises how many there are
    frontier: int = NEVER
    told: Told | None = None  # rows are what was told by then of the table, and depend on the cut; here is the table


def where(s: Where, ins: list[list[Row]], fs: list[int]) -> Result:
    kept = [r for r in ins[0] if r.key is not None and r.key != "c"]
    return Result(kept, fates=Counter(passed=len(kept), filtered=len(ins[0]) - len(kept)), frontier=fs[0])


def slim(s: Slim, ins: list[list[Row]], fs: list[int]) -> Result:
    return Result([r._replace(val=integer(r.val)) for r in ins[0]], frontier=fs[0])


def integer(val: Any) -> int:
    return val if isinstance(val, int) else sum(map(integer, val or ()))


def union(s: Union, ins: list[list[Row]], fs: list[int]) -> Result:
    return Result([r._replace(pos=(r.pos, i)) for i, rows in enumerate(ins) for r in rows], frontier=min(fs))


def judged(late: str, rows: list[Row], on_time: Callable[[Row], bool]) -> tuple[list[Row], list[Row], Counter[str]]:
    taken, refused = [r for r in rows if on_time(r)], [r for r in rows if not on_time(r)]
    fates = Counter({"on time": len(taken), "diverted" if late == "divert" else "ignored": len(refused)})
    return taken, refused if late == "divert" else [], fates


def window(s: Window, ins: list[list[Row]], fs: list[int]) -> Result:
    groups: dict[tuple[str | None, int], list[tuple[Any, bool]]] = {}
    late, fates = [], Counter[str]()
    for r in ins[0]:
        verdicts = [(w, fate(s.late, w + s.size > r.W, w + s.size + s.allowed > r.W)) for w in s.starts(r.t)]
        fates.update(f for _, f in verdicts)
        fates["outside"] += not verdicts
        if s.overlaps:
            fates.update({"judged": 1, "windows": len(verdicts)})
            fates["late rows"] += any(f in ("diverted", "ignored") for _, f in verdicts)
        if any(f == "diverted" for _, f in verdicts):
            late.append(r)
        for w, f in verdicts:
            if f in ("on time", "corrected"):
                groups.setdefault((r.key, w), []).append((r.val, f == "corrected"))
    rows = [
        Row(w + s.size - 1, k, _window_value(s, group), ("window", k, w))
        for (k, w), group in groups.items()
        if s.emit == "updates" or w + s.size <= fs[0]
    ]
    return Result(rows, late, fates, fs[0])


def fate(late: str, on_time: bool, correctable: bool) -> str:
    if on_time:
        return "on time"
    if late == "correct":
        return "corrected" if correctable else "diverted"
    return "ignored" if late == "ignore" else "diverted"


def _window_value(s: Window, group: list[tuple[Any, bool]]) -> tuple[Any, ...]:
    vals, corrected = [v for v, _ in group], sum(c for _, c in group)
    if s.every_aggregate:
        return every_aggregate(vals)
    return (len(vals), total(vals), corrected) if s.updating else (len(vals), total(vals))


def session(s: Session, ins: list[list[Row]], fs: list[int]) -> Result:
    fates = {r.pos: fate(s.late, r.t >= r.W, r.t + s.allowed >= r.W) for r in ins[0]}
    rows = []
    for run in runs([r for r in ins[0] if fates[r.pos] in ("on time", "corrected")], s.gap, s.longest):
        first, key = run[0].t, run[0].key
        end = min(run[-1].t + s.gap, first + (s.longest or FOREVER))
        value = (len(run), total([r.val for r in run]), *([sum(fates[r.pos] == "corrected" for r in run)] if s.updating else ()))
        if s.emit == "updates" or end <= fs[0]:
            rows.append(Row(end - 1, key, value, ("window", key, first)))
    return Result(rows, [r for r in ins[0] if fates[r.pos] == "diverted"], Counter(fates.values()), fs[0])


def runs(rows: list[Row], gap: int, longest: int | None = None) -> list[list[Row]]:
    """The rows of each key in their order, cut where two are `gap` apart or the first lies `longest` behind."""
    out: list[list[Row]] = []
    for r in sorted(rows, key=lambda r: (r.key is not None, r.key or "", r.t)):
        same = out and out[-1][0].key == r.key and r.t - out[-1][-1].t < gap
        if same and (longest is None or r.t - out[-1][0].t < longest):
            out[-1].append(r)
        else:
            out.append([r])
    return out


def running(s: Running, ins: list[list[Row]], fs: list[int]) -> Result:
    """One row per key; with keep, over the rows since it was last silent for so long, until it has been twice that long."""
    keep = FOREVER if s.keep is None else s.keep
    taken = [r for r in ins[0] if s.keep is None or r.t + keep > r.W]
    newest = {run[0].key: run for run in runs(taken, keep)}
    rows = [
        Row(run[-1].t, key, (len(run), total([r.val for r in run])), ("window", key, 0))
        for key, run in newest.items()
        if s.keep is None or run[-1].t + 2 * keep > fs[0]
    ]
    return Result(rows, fates=Counter({"passed": len(taken), "too old": len(ins[0]) - len(taken)}), frontier=fs[0])


def sliding(s: Sliding, ins: list[list[Row]], fs: list[int]) -> Result:
    """For each row whose instant is complete the rows of its key in (t - size, t], its peers included."""
    taken, late, fates = judged(s.late, ins[0], lambda r: r.t >= r.W)
    out = []
    for r in taken:
        near = [m.val for m in taken if m.key == r.key and r.t - s.size < m.t <= r.t]
        if r.t < fs[0]:
            out.append(settle(r)._replace(val=(len(near), total(near))))
    return Result(out, late, fates, fs[0])


def count(s: Count, ins: list[list[Row]], fs: list[int]) -> Result:
    """Every so many rows of a key, in the order (time, position)."""
    taken, late, fates = judged(s.late, ins[0], lambda r: r.t >= r.W)
    keys: dict[str | None, list[Row]] = {}
    for r in sorted((r for r in taken if r.t < fs[0]), key=order):
        keys.setdefault(r.key, []).append(r)
    out = []
    for key, rows in keys.items():
        for number in range(len(rows) // s.rows):
            full = [r.val for r in rows[number * s.rows : (number + 1) * s.rows]]
            out.append(Row(rows[(number + 1) * s.rows - 1].t, key, (len(full), total(full)), ("window", key, number)))
    return Result(out, late, fates, fs[0])


def alert(s: Alert, ins: list[list[Row]], fs: list[int]) -> Result:
    """Of each key, in the order (time, position): the rows that are told of."""
    taken, late, fates = judged(s.late, ins[0], lambda r: r.t >= r.W)
    out = []
    for key in {r.key for r in taken}:
        since = told = None  # when it began, and when that was told last
        known = False  # whether what goes on now was told
        for r in sorted((r for r in taken if r.key == key and r.t < fs[0]), key=order):
            rest = None if r.val is None else r.val % 3
            if since is not None and rest == 0:
                if known:
                    out.append(settle(r)._replace(val=(r.val, "resolved", since)))
                since, known = None, False
            elif rest == 2:
                since = r.t if since is None else since
                if not known if s.every is None else told is None or r.t - told >= s.every:
                    out.append(settle(r)._replace(val=(r.val, "fired", since)))
                    told, known = r.t, True
    return Result(out, late, fates, fs[0])


def alert_table(s: AlertTable, ins: list[list[Row]], fs: list[int]) -> Result:
    """Of each key the newest row, and what all its rows say in the order (time, position)."""
    out = []
    for key in {r.key for r in ins[0]}:
        word = since = None
        rows = sorted((r for r in ins[0] if r.key == key), key=order)
        for r in rows:
            rest = None if r.val[1] is None else r.val[1] % 3
            if rest == 2 and word != "fired":
                word, since = "fired", r.t
            elif rest == 0:
                word = "resolved"
        out.append(Row(rows[-1].t, key, (*rows[-1].val[:2], word, since), ("window", key, 0)))
    return Result(out, fates=None, frontier=fs[0])


def told(s: Told, ins: list[list[Row]], fs: list[int]) -> Result:
    return Result(ins[0], fates=None, told=s)


def total(vals: list[Any]) -> Any:
    known = [v for v in vals if v is not None]
    return sum(known) if known else None


def every_aggregate(vals: list[int | None]) -> tuple[Any, ...]:
    """count of rows and values; sum, avg, min, max of whole numbers, doubles and decimals; min and max of text and truth."""
    known = [v for v in vals if v is not None]
    doubles, cents = [double(v) for v in known], [Decimal(v).scaleb(-2) for v in known]

    def of(f: Callable[[list[Any]], Any], values: list[Any]) -> Any:
        return f(values) if values else None

    truths = [v % 2 == 0 for v in known]
    return (
        *(len(vals), len(known), of(sum, known), of(mean, known), of(min, known), of(max, known)),
        *(of(sum, doubles), of(mean, doubles), of(least, doubles), of(greatest, doubles)),
        *(of(sum, cents), of(mean_of_decimals, cents), of(min, cents), of(max, cents)),
        *(of(min, [text(v) for v in known]), of(max, [text(v) for v in known]), of(min, truths), of(max, truths)),
    )


def mean(values: list[Any]) -> Any:
    return sum(values) / len(values)


def mean_of_decimals(values: list[Decimal]) -> Decimal:
    """With four more digits, rounded half up."""
    return (sum(values, Decimal(0)) / len(values)).quantize(Decimal("0.000001"), ROUND_HALF_UP)


def double(v: int) -> float:
    return math.nan if v == 5 else v / 4


def text(v: int) -> str:
    return "é" * (v % 3) + chr(ord("a") + v % 7)


def least(doubles: list[float]) -> float:
    return min(doubles, key=lambda x: (math.isnan(x), x))


def greatest(doubles: list[float]) -> float:
    return max(doubles, key=lambda x: (math.isnan(x), x))


# Conditions of joins over the values of both sides: true, false or, where a null decides, None.
CONDITIONS: dict[str, Callable[[int | None, int | None], bool | None]] = {
    "less": lambda a, b: None if a is None or b is None else a < b,
    "odd": lambda a, b: None if b is None else b % 2 == 1,
    "missing": lambda a, b: a is None or b is None,
    "either": lambda a, b: True if a in (0, 1, 2) or b == 3 else None if a is None or b is None else False,
}


def join(s: Join, ins: list[list[Row]], fs: list[int]) -> Result:
    (lefts, late, fates), (rights, late2, fates2) = (judged(s.late, rows, lambda r: r.t >= r.W) for rows in ins)

    def match(left: Row, right: Row) -> bool:
        near = left.key is not None and left.key == right.key and s.lo <= right.t - left.t <= s.hi
        return near and (s.where is None or CONDITIONS[s.where](left.val, right.val) is True)

    out = []
    for left in map(settle, lefts):
        partners = [r for r in rights if match(left, r)]
        over = not partners and fs[1] > left.t + s.hi
        if s.how in ("semi", "anti"):
            out += [left] if (partners if s.how == "semi" else over) else []
            continue
        out += [Row(max(left.t, r.t), left.key, (left.val, r.val), ("pair", left.pos, r.pos)) for r in partners]
        if s.how in ("left", "full") and over:
            out.append(Row(left.t, left.key, (left.val, None), ("pair", left.pos, None)))
    if s.how in ("right", "full"):
        alone = [r for r in rights if not any(match(left, r) for left in lefts) and fs[0] > r.t - s.lo]
        out += [Row(r.t, r.key, (None, r.val), ("pair", None, r.pos)) for r in alone]
    return Result(out, late + late2, fates + fates2, later(min(fs), -s.held))


def enrich(s: Enrich, ins: list[list[Row]], fs: list[int]) -> Result:
    """Each row with the greatest of the versions it sees; W of a version is the mark that answers had left on its partition."""
    out, fates = [], Counter(version=len(ins[1]))
    for r in ins[0]:
        if s.wait is not None and fs[0] <= r.t + s.wait:
            fates["held"] += 1
            continue
        old = s.history is not None and r.t < r.W - s.history
        found = None if old else answer(s, r, ins[1])
        lonely = s.how == "inner" and found is None
        fates["too old" if old else "unmatched" if lonely else "answered"] += 1
        out += [] if lonely else [r._replace(val=(r.val, found))]
    return Result(out, fates=fates, frontier=later(fs[0], -(s.wait or 0)))


def answer(s: Enrich, r: Row, versions: list[Row]) -> Any:
    def clock(x: Row) -> int:
        return x.t if s.as_of == "event" else x.app

    mine = [v for v in versions if r.key is not None and v.key == r.key]
    seen = [v for v in mine if clock(v) <= clock(r) and v.W - (s.allowed or 0) <= clock(r)]
    return max(seen, key=lambda v: (clock(v), order(v))).val if seen else None


def later(F: int, by: int) -> int:
    """What is endless stays so."""
    return F if F in (NEVER, FOREVER) else F + by


DEFINITIONS: dict[type, Callable[..., Result]] = {
    Where: where,
    Slim: slim,
    Union: union,
    Window: window,
    Session: session,
    Running: running,
    Sliding: sliding,
    Count: count,
    Alert: alert,
    AlertTable: alert_table,
    Told: told,
    Join: join,
    Enrich: enrich,
}


def specify(step: Step, ins: list[list[Row]], fs: list[int]) -> Result:
    return DEFINITIONS[type(step)](step, ins, fs)
