"""Where a flow's rows come from: topics read as streams or as tables, and static rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Literal, Self

from penstock.core.time import duration_text
from penstock.plan.node import Facts, Meaning, Node, plain, span


@dataclass(frozen=True)
class ClockFix:
    """Event times from three: happened and sent by the device's clock, received by ours."""

    happened: str
    sent: str
    received: str | None  # None: the append time
    by: tuple[str, ...]  # the columns that name a device
    span: timedelta
    past: timedelta  # a corrected time further than this before the append time is implausible
    corrected: str  # the columns it makes
    uncertainty: str

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.happened, self.sent, *((self.received,) if self.received else ()), *self.by)


@dataclass(frozen=True)
class Static:
    """Rows that are there from the beginning and never change: a file, or rows written in the flow."""

    path: str | None
    rows: tuple[tuple[Any, ...], ...] = ()
    columns: tuple[str, ...] = ()  # of the rows, in their order
    beside: str = field(default="", repr=False, compare=False)  # the directory of the flow's file: a path may count from there


@dataclass(frozen=True)
class Versions:
    """How records say what becomes of the rows of a table: each is a version of the row that its key names."""

    key: tuple[str, ...]
    form: Literal["detect", "rows", "debezium"] = "detect"  # of a record; detect: envelopes are told from rows one by one
    op: str | None = None  # the column that says whether a row is put in or taken out
    static: Static | None = None  # not a topic at all
    taken: str | None = field(
        default=None, repr=False, compare=False
    )  # its columns as a capture knew them, where the flow did not say

    def facts(self) -> Facts:
        if self.static:
            yield "rows", self.static.path or f"{len(self.static.rows):,} written in the flow"
        elif self.op:
            yield "changes", f"as column {self.op} says"
        else:
            forms = {"detect": "rows, or envelopes of Debezium", "rows": "rows", "debezium": "envelopes of Debezium"}
            yield "changes", forms[self.form]

    def meaning(self) -> Meaning:
        static = self.static
        rows = {"path": static.path, "rows": plain(static.rows), "columns": list(static.columns)} if static else None
        return {"key": list(self.key), "form": self.form, "op": self.op, "static": rows}


@dataclass(frozen=True)
class Source(Node):
    """A topic read as a stream or as a table."""

    topic: str
    time: str | None  # None: the record's own event time, unless `append` or `clock` says otherwise
    lateness: timedelta | None
    idle: timedelta
    columns: tuple[str, ...]  # those that any step reads, and those that say the time
    key: tuple[str, ...] = ()  # the columns of the record's key, where the flow names them
    append: bool = False  # the append time is the event time
    append_time: str | None = None  # a column it makes: the append time
    delay: timedelta | None = None  # read to its end, time has come to the clock less this
    clock: ClockFix | None = None
    versions: Versions | None = None  # it is read as a table: rows carry OP, and watermarks move by marks alone
    appended: bool = False  # rows carry their append time, for steps that look at it

    @property
    def static(self) -> bool:
        """It is no topic of the log at all, whatever it is called."""
        return self.versions is not None and self.versions.static is not None

    @property
    def own_columns(self) -> tuple[str, ...]:
        """The columns that say the time; of a table also its key and what becomes of its rows."""
        table = (*self.versions.key, *((self.versions.op,) if self.versions.op else ())) if self.versions else ()
        return (*((self.time,) if self.time else ()), *(self.clock.reads if self.clock else ()), *table)

    @property
    def made(self) -> frozenset[str]:
        """The columns that are not in the topic."""
        clock = (self.clock.corrected, self.clock.uncertainty) if self.clock else ()
        return frozenset((*clock, *((self.append_time,) if self.append_time else ())))

    @property
    def kind(self) -> str:
        if self.versions is None:
            return "stream"
        return "static" if self.versions.static else "versions"

    def facts(self) -> Facts:
        yield "topic", self.topic
        yield "time", self._time()
        if self.lateness is not None:
            yield "lateness", f"{duration_text(self.lateness)}, idle after {duration_text(self.idle)}"
        if self.delay is not None:
            yield "delay", f"{duration_text(self.delay)} behind the clock, when read to its end"
        if self.key:
            yield "key", ", ".join(self.key)
        if self.versions:
            yield from self.versions.facts()

    def _time(self) -> str:
        clock = self.clock
        if clock:
            named = f"{clock.received or 'append time'} - {clock.sent} by {', '.join(clock.by)}"
            return f"{clock.happened} + least {named} within {duration_text(clock.span)}"
        return "append time" if self.append else self.time or "as the topic gives it"

    def always(self, given: Sequence[str]) -> set[str]:
        return set(self.own_columns)

    def narrowed(self, given: Sequence[str]) -> "Source":
        return replace(self, columns=tuple(given))

    def keyed_by(self) -> list[tuple[str, ...]]:
        return [self.clock.by] if self.clock else []

    @property
    def keeps_append_times(self) -> bool:
        return True

    def with_append_times(self) -> Self:
        return replace(self, appended=True)

    def reads_topic(self) -> str:
        return self.topic

    def meaning(self) -> Meaning:
        return {
            "is": "source/1",
            "topic": self.topic,
            "time": self.time,
            "lateness": span(self.lateness),
            "append": self.append,
            "append_time": self.append_time,
            "clock": plain(self.clock),
            "versions": self.versions.meaning() if self.versions else None,
        }
