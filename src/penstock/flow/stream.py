"""A stream and its verbs. Each verb builds one node and gives the stream that comes out of it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from penstock.core.schema import Schema
from penstock.flow import clocks
from penstock.flow.aggregates import Agg
from penstock.flow.definition import Definition, Node
from penstock.flow.joins import How, JoinDefinition, Within, bounds
from penstock.flow.late import LateDefinition
from penstock.flow.plan import Late
from penstock.flow.rows import MapArrowDefinition, SelectDefinition, UnionDefinition, WhereDefinition, WithColumnsDefinition
from penstock.flow.windows import Tumbling, WindowDefinition

if TYPE_CHECKING:
    from penstock.flow.graph import FlowGraph


@dataclass(frozen=True)
class Stream:
    """Rows on their way. A value: verbs give new streams and change none."""

    flow: "FlowGraph" = field(repr=False)
    node: Node

    def where(self, condition: str, name: str | None = None) -> "Stream":
        """The rows for which a Spark SQL condition is true: `orders.where("amount > 100")`."""
        return self._next(WhereDefinition(condition), name)

    def select(self, *columns: str, **named: str) -> "Stream":
        """Some columns, and Spark SQL expressions under new names: `orders.select("order_id", eur="amount * 0.9")`."""
        return self._next(SelectDefinition(columns, tuple(named.items())))

    def with_columns(self, **named: str) -> "Stream":
        """All columns and some more: `orders.with_columns(eur="amount * 0.9")`. An existing name is replaced in its place."""
        return self._next(WithColumnsDefinition(tuple(named.items())))

    def union(self, *others: "Stream", name: str | None = None) -> "Stream":
        """The rows of this stream and others with the same columns."""
        nodes = tuple(self._other(other).node for other in others)
        return Stream(self.flow, self.flow.add(UnionDefinition(), (self.node, *nodes), name))

    def map_arrow(
        self, function: Callable[[pa.Table], pa.Table], schema: "str | Schema | pa.Schema | type", name: str | None = None
    ) -> "Stream":
        """A Python function over Arrow tables. It must give one row for each row, and look at no other: tables are cut anywhere."""
        if not callable(function):
            self.flow.here().refuse(f"cannot call {function!r}", hint="give a function that takes and gives an Arrow table")
        with self.flow.here().located():
            return self._next(MapArrowDefinition(function, Schema.of(schema)), name)

    def window(self, window: Tumbling, by: str | Iterable[str], late: Late = "divert", name: str | None = None) -> "Windowed":
        """Rows of one key in one stretch of time: `orders.window(Tumbling("1 minute"), by="user_id").agg(n=agg.count())`.

        `late="divert"` keeps rows that come after their window is complete as `.late`, `"ignore"` only counts them."""
        self._one_of("late", late, ("divert", "ignore"))
        if not isinstance(window, Tumbling):
            self.flow.here().refuse(f"cannot open a window of {window!r}", hint='give its kind, e.g. Tumbling("1 minute")')
        return Windowed(self, window, _columns(by), late, name)

    def join(
        self,
        other: "Stream",
        on: str | Iterable[str],
        within: Within | None = None,
        how: How = "inner",
        late: Late = "divert",
        name: str | None = None,
    ) -> "Judged":
        """Pairs of rows with equal `on` whose times are at most `within` apart, either way; a pair `("-5 minutes", "30 minutes")`
        says how far the other row may lie before and after this one. `how="left"` also gives rows that found no partner."""
        self._one_of("how", how, ("inner", "left"))
        self._one_of("late", late, ("divert", "ignore"))
        with self.flow.here().located():
            definition = JoinDefinition(_columns(on), bounds(within), how, late)
        return Judged(self.flow, self.flow.add(definition, (self.node, self._other(other).node), name))

    def clock_fix(
        self,
        *,
        happened: str,
        sent: str,
        by: str | Iterable[str],
        received: str = "append",
        span: str | timedelta = "1 hour",
        past: str | timedelta = "3650 days",
        corrected: str = "corrected",
        uncertainty: str = "uncertainty",
        name: str | None = None,
    ) -> "Stream":
        """Sets the clocks of devices right, directly on a stream: corrected = happened + (received - sent), and that is the time
        of the rows from here on.

        `happened` and `sent` are columns by the clock of the device that `by` names, `received` is one by ours, or "append": when
        the log took the record. Of received - sent the smallest within the last `span` of a device counts, so that what the network
        takes now more, now less reorders nothing; `uncertainty` is how many seconds longer than that a row took. A corrected time
        more than `past` before the append time, or more than the topic's `future` beyond it, is implausible."""
        with self.flow.here().located():
            fix = clocks.given(happened, sent, received, _columns(by), span, past, corrected, uncertainty)
        return Stream(self.flow, self.flow.reread(self.node, fix, name))

    def to(self, topic: str, key: str | Iterable[str] | None = None, partitions: int = 1, name: str | None = None) -> Self:
        """Writes the stream to a topic. `key` names the columns of the records' key."""
        self.flow.write("topic", topic, self.node, key, partitions)
        return self if name is None else self.named(name)

    def view(self, name: str, key: str | Iterable[str] | None = None) -> Self:
        """Serves the stream as a view. `key` names the columns that tell its rows apart."""
        self.flow.write("view", name, self.node, key)
        return self

    def named(self, name: str) -> Self:
        """Names the step that made this stream; its state is found again under that name."""
        self.flow.call(self.node, name)
        return self

    def _next(self, definition: Definition, name: str | None = None) -> "Stream":
        return Stream(self.flow, self.flow.add(definition, (self.node,), name))

    def _other(self, other: "Stream") -> "Stream":
        if not isinstance(other, Stream):
            self.flow.here().refuse(f"cannot bring a stream together with {other!r}", hint="give another stream of this flow")
        return other

    def _one_of(self, what: str, given: str, allowed: tuple[str, ...]) -> None:
        if given not in allowed:
            self.flow.here().refuse(f"{what}={given!r} is not known", hint=f"use {' or '.join(repr(a) for a in allowed)}")


class Judged(Stream):
    """What a step gives that calls rows late."""

    @property
    def late(self) -> Stream:
        """The rows that came too late, as they came in."""
        return Stream(self.flow, self.flow.shared(LateDefinition(), (self.node,)))


@dataclass(frozen=True)
class Windowed:
    """A window that waits for its aggregates."""

    stream: Stream
    window: Tumbling
    by: tuple[str, ...]
    late: Late
    name: str | None = None

    def agg(self, **aggregates: Agg | str | None) -> Judged:
        """One row for each key and window: `agg(n=agg.count(), total=agg.sum("amount"))`. `name="…"` names the step."""
        name = aggregates.get("name")
        named = tuple((column, given) for column, given in aggregates.items() if isinstance(given, Agg))
        flow = self.stream.flow
        wrong = {c: g for c, g in aggregates.items() if not isinstance(g, Agg) and (c != "name" or not isinstance(g, str | None))}
        for column, given in wrong.items():
            flow.here().refuse(f"cannot aggregate {column}={given!r}", hint=f'give an aggregate, e.g. {column}=agg.sum("amount")')
        definition = WindowDefinition(self.window, self.by, named, self.late)
        called = name if isinstance(name, str) else self.name
        return Judged(flow, flow.add(definition, (self.stream.node,), called))


def _columns(given: str | Iterable[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)
