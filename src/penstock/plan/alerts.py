"""Alerts: which rows say that something begins, goes on or ends."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from penstock.core.time import duration_text
from penstock.plan.node import Facts, Judging, Late, Meaning, Node, span


@dataclass(frozen=True)
class Alert(Node):
    """Of each key the rows with which it begins and ends to fire, in the order (time, position)."""

    family: ClassVar[str] = "alert"

    by: tuple[str, ...]
    when: str  # a column of truth: the row makes it fire
    resolve: str  # the same: the row ends it
    every: timedelta | None = None  # that it fires is told so often at most, and again as long as it does; None: once
    late: Late = "divert"

    def facts(self) -> Facts:
        yield "by", ", ".join(self.by) or "everything"
        yield "tells", f"every {duration_text(self.every)} while it fires" if self.every else "once while it fires"
        yield "judges", f"time ≥ watermark; late rows: {self.late}"

    def always(self, given: Sequence[str]) -> set[str]:
        return set(given)

    def reads(self, wanted: set[str], above: Sequence[Sequence[str]]) -> list[set[str]]:
        return [set(above[0])]  # it gives the rows themselves

    def keyed_by(self) -> list[tuple[str, ...]]:
        return [self.by] if self.by else []

    def judging(self) -> Judging:
        return Judging(self.late)

    def closed(self, newest: Sequence[int], end: int) -> int:
        return end

    def meaning(self) -> Meaning:
        said = {"by": list(self.by), "when": self.when, "resolve": self.resolve, "every": span(self.every), "late": self.late}
        return {"is": "alert/1", **said}


@dataclass(frozen=True)
class AlertTable(Node):
    """The newest row of each key of `by`, with whether it fires: what the rows that hold now say in the order (time, position)."""

    family: ClassVar[str] = "alert-table"

    by: tuple[str, ...]
    when: str
    resolve: str
    key: tuple[str, ...]  # what names a row that comes in; () = its position
    settled: timedelta | None = None  # how long behind its time such a row can change; None: for ever

    @property
    def kind(self) -> str:
        return "alert"

    def facts(self) -> Facts:
        yield "by", ", ".join(self.by) or "everything"
        kept = "the rows that hold now" if self.settled is None else f"rows for {duration_text(self.settled)} behind their time"
        yield "keeps", kept

    def always(self, given: Sequence[str]) -> set[str]:
        return set(given)

    def reads(self, wanted: set[str], above: Sequence[Sequence[str]]) -> list[set[str]]:
        return [set(above[0])]

    def keyed_by(self) -> list[tuple[str, ...]]:
        return [names for names in (self.by, self.key) if names]

    def own_key(self) -> tuple[str, ...]:
        return self.by

    def meaning(self) -> Meaning:
        said = {"by": list(self.by), "when": self.when, "resolve": self.resolve, "key": list(self.key)}
        return {"is": "alert-table/1", **said, "settled": span(self.settled)}


@dataclass(frozen=True)
class Told(Node):
    """What is told of a table of alerts, for actions alone: how many messages there are depends on where epochs were cut."""

    family: ClassVar[str] = "told"

    by: tuple[str, ...]
    every: timedelta | None = None  # as an Alert has it

    def facts(self) -> Facts:
        yield "by", ", ".join(self.by) or "everything"
        yield "tells", f"every {duration_text(self.every)} while it fires" if self.every else "once while it fires"

    def always(self, given: Sequence[str]) -> set[str]:
        return set(given)

    def reads(self, wanted: set[str], above: Sequence[Sequence[str]]) -> list[set[str]]:
        return [set(above[0])]

    def keyed_by(self) -> list[tuple[str, ...]]:
        return [self.by] if self.by else []

    def meaning(self) -> Meaning:
        return {"is": "told/1", "by": list(self.by), "every": span(self.every)}
