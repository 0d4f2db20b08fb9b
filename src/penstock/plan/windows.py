"""Windows and other aggregates over streams."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, ClassVar, Self

import pyarrow as pa

from penstock.core.schema import type_text
from penstock.core.time import duration_text, micros
from penstock.plan.layouts import Layout
from penstock.plan.node import Emit, Facts, Judging, Late, Meaning, Node, plain, span


@dataclass(frozen=True)
class Aggregate:
    name: str
    function: str
    column: str | None  # None: of rows
    type: pa.DataType  # of the result
    others: tuple[str, ...] = ()  # further columns it reads
    options: tuple[Any, ...] = ()  # what else the function was given, in its own order
    implementation: object | None = field(default=None, repr=False)  # of one from outside; Penstock's own are found by name

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column, *self.others) if self.column else self.others

    def __str__(self) -> str:
        given = ", ".join([*self.columns, *map(str, self.options)]) or "*"
        return f"{self.name} = {self.function}({given})"

    def meaning(self) -> Meaning:
        return {
            "name": self.name,
            "function": self.function,
            "columns": list(self.columns),
            "of_rows": self.column is None,
            "type": type_text(self.type),
            "options": plain(self.options),
        }


class Aggregating(Node):
    """Rows put together by key, one result column for each aggregate."""

    by: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]

    def facts(self) -> Facts:
        yield "by", ", ".join(self.by) or "everything"
        yield from self.extent()
        for aggregate in self.aggregates:
            yield "makes", str(aggregate)
        yield from self.rules()

    def extent(self) -> Facts:
        """Over which rows."""
        yield from ()

    def rules(self) -> Facts:
        """Which rows count, and when results are given."""
        judging = self.judging()
        if judging:
            rule = "window_end > watermark" if judging.layout else "time ≥ watermark"
            allowed = f" up to {duration_text(judging.allowed)}" if judging.allowed else ""
            yield "judges", f"{rule}; late rows: {judging.late}{allowed}"

    def aggregated(self) -> Sequence[Aggregate]:
        return self.aggregates

    def aggregating(self, aggregates: tuple[Aggregate, ...]) -> Self:
        return replace(self, aggregates=aggregates)  # type: ignore[type-var]

    def always(self, given: Sequence[str]) -> set[str]:
        return set(given)

    def reads(self, wanted: set[str], above: Sequence[Sequence[str]]) -> list[set[str]]:
        return [{*self.by, *(c for a in self.aggregates for c in a.columns)}]

    def keyed_by(self) -> list[tuple[str, ...]]:
        return [self.by] if self.by else []

    def made(self) -> Meaning:
        """What every meaning says of keys and aggregates."""
        return {"by": list(self.by), "aggregates": [a.meaning() for a in self.aggregates]}


def _sends(emit: Emit, early: timedelta | None) -> Facts:
    shown = f", open ones every {duration_text(early)}" if early else ""
    yield "sends", f"{'complete windows' if emit == 'final' else 'every change'}{shown}"


@dataclass(frozen=True)
class Window(Aggregating):
    """Windows that lie fixed in time."""

    family: ClassVar[str] = "window"

    by: tuple[str, ...]
    layout: Layout
    aggregates: tuple[Aggregate, ...]
    late: Late = "divert"
    allowed: timedelta = timedelta()
    emit: Emit = "final"
    early: timedelta | None = None  # how often windows that are not complete are shown under emit="final"

    @property
    def kind(self) -> str:
        return self.layout.kind

    def extent(self) -> Facts:
        yield from self.layout.facts()

    def rules(self) -> Facts:
        yield from super().rules()
        yield from _sends(self.emit, self.early)

    def judging(self) -> Judging:
        return Judging(self.late, self.layout, corrects=True, allowed=self.allowed)

    def once(self) -> frozenset[str]:
        return frozenset(("window_start", *self.by))

    def closed(self, newest: Sequence[int], end: int) -> int:
        return end + micros(self.allowed)

    def newest_given(self, newest: Sequence[int], closed: int) -> int:
        return closed - 1

    def shows_early(self) -> timedelta | None:
        return self.early

    def settles(self) -> timedelta:
        return self.allowed

    def meaning(self) -> Meaning:
        return {
            "is": "window/1",
            "layout": self.layout.meaning(),
            **self.made(),
            "late": self.late,
            "allowed": span(self.allowed),
            "emit": self.emit,
            "early": span(self.early),
        }


@dataclass(frozen=True)
class Session(Aggregating):
    """Rows less than `gap` apart; a session is cut where it would be longer than `longest`."""

    family: ClassVar[str] = "session"

    by: tuple[str, ...]
    gap: timedelta
    longest: timedelta | None
    aggregates: tuple[Aggregate, ...]
    late: Late = "divert"
    allowed: timedelta = timedelta()
    emit: Emit = "final"
    early: timedelta | None = None

    @property
    def kind(self) -> str:
        return "session window"

    def extent(self) -> Facts:
        yield "gap", duration_text(self.gap) + (f", at most {duration_text(self.longest)} long" if self.longest else "")

    def rules(self) -> Facts:
        yield from super().rules()
        yield from _sends(self.emit, self.early)

    def judging(self) -> Judging:
        return Judging(self.late, corrects=True, allowed=self.allowed)

    def closed(self, newest: Sequence[int], end: int) -> int:
        return newest[0] + micros(self.gap) + micros(self.allowed)

    def newest_given(self, newest: Sequence[int], closed: int) -> int:
        return closed - 1

    def shows_early(self) -> timedelta | None:
        return self.early

    def settles(self) -> timedelta:
        return self.allowed

    def meaning(self) -> Meaning:
        return {
            "is": "session/1",
            "gap": span(self.gap),
            "longest": span(self.longest),
            **self.made(),
            "late": self.late,
            "allowed": span(self.allowed),
            "emit": self.emit,
            "early": span(self.early),
        }


@dataclass(frozen=True)
class Count(Aggregating):
    """Every so many rows of a key, in the order (time, position)."""

    family: ClassVar[str] = "count"

    by: tuple[str, ...]
    rows: int
    aggregates: tuple[Aggregate, ...]
    late: Late = "divert"

    @property
    def kind(self) -> str:
        return "count window"

    def extent(self) -> Facts:
        yield "size", f"{self.rows:,} rows"

    def judging(self) -> Judging:
        return Judging(self.late)

    def closed(self, newest: Sequence[int], end: int) -> int:
        return end

    def meaning(self) -> Meaning:
        return {"is": "count/1", "rows": self.rows, **self.made(), "late": self.late}


@dataclass(frozen=True)
class Sliding(Aggregating):
    """For each row the rows of its key in (t - size, t]."""

    family: ClassVar[str] = "sliding"

    by: tuple[str, ...]
    size: timedelta
    aggregates: tuple[Aggregate, ...]
    late: Late = "divert"

    @property
    def kind(self) -> str:
        return "sliding window"

    def extent(self) -> Facts:
        yield "size", f"{duration_text(self.size)} before each row"

    def reads(self, wanted: set[str], above: Sequence[Sequence[str]]) -> list[set[str]]:
        return [set(above[0])]  # it gives the rows themselves

    def judging(self) -> Judging:
        return Judging(self.late)

    def closed(self, newest: Sequence[int], end: int) -> int:
        return end + micros(self.size)

    def meaning(self) -> Meaning:
        return {"is": "sliding/1", "size": span(self.size), **self.made(), "late": self.late}


@dataclass(frozen=True)
class Running(Aggregating):
    """One row per key over all its rows; with `keep`, over those since it was last silent for so long."""

    family: ClassVar[str] = "running"

    by: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    keep: timedelta | None = None

    def extent(self) -> Facts:
        kept = self.keep
        yield "over", f"all rows; a key goes when it was silent for {duration_text(kept)}" if kept else "all rows"

    def closed(self, newest: Sequence[int], end: int) -> int | None:
        return None if self.keep is None else end + 2 * micros(self.keep)

    def forgets(self) -> timedelta | None:
        return self.keep

    def meaning(self) -> Meaning:
        return {"is": "running/1", **self.made(), "keep": span(self.keep)}


@dataclass(frozen=True)
class Last(Node):
    """The rows with t > F - size: they come, and go as time goes on."""

    family: ClassVar[str] = "last"

    size: timedelta

    def facts(self) -> Facts:
        yield "keeps", f"rows with time > watermark - {duration_text(self.size)}"

    def always(self, given: Sequence[str]) -> set[str]:
        return set(given)

    def reads(self, wanted: set[str], above: Sequence[Sequence[str]]) -> list[set[str]]:
        return [set(above[0])]  # it gives the rows themselves

    def closed(self, newest: Sequence[int], end: int) -> int:
        return end + micros(self.size)

    def meaning(self) -> Meaning:
        return {"is": "last/1", "size": span(self.size)}
