"""A stream and its verbs. Each verb builds one node and gives the stream that comes out of it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, Self, get_args

import pyarrow as pa

from penstock.core import time
from penstock.core.schema import Schema
from penstock.flow.definition import Definition, Node
from penstock.flow.steps import clocks, lookups
from penstock.flow.steps.aggregates import Agg
from penstock.flow.steps.alerts import AlertDefinition
from penstock.flow.steps.enrich import HISTORY, AsOf, EnrichDefinition
from penstock.flow.steps.joins import JoinDefinition, Within, bounds
from penstock.flow.steps.kinds import Kind, Span
from penstock.flow.steps.late import LateDefinition
from penstock.flow.steps.rows import MapArrowDefinition, SelectDefinition, UnionDefinition, WhereDefinition, WithColumnsDefinition
from penstock.flow.steps.tables import LatestDefinition
from penstock.flow.steps.windows import LastDefinition, RunningDefinition, WindowDefinition
from penstock.plan import Emit, How, Late, OnError, SinkDefinition
from penstock.sinks.definitions import TopicDefinition, ViewDefinition

if TYPE_CHECKING:
    from penstock.flow.graph import FlowGraph


@dataclass(frozen=True)
class Stream:
    """Rows on their way. A value: verbs give new streams and change none."""

    flow: "FlowGraph" = field(repr=False)
    node: Node

    def where(self, condition: str, name: str | None = None, on_error: OnError = "dead") -> "Stream":
        """The rows for which a Spark SQL condition is true: `orders.where("amount > 100")`. A row on which it fails is a dead
        letter; with `on_error="null"` it is filtered, with `"stop"` it stops the flow."""
        return self._next(WhereDefinition(condition, self._on_error(on_error)), name)

    def select(self, *columns: str, on_error: OnError = "dead", **named: str) -> "Stream":
        """Some columns, and Spark SQL expressions under new names: `orders.select("order_id", eur="amount * 0.9")`. A row on
        which one of them fails is a dead letter; with `on_error="null"` that column is null, with `"stop"` the flow stops."""
        return self._next(SelectDefinition(columns, tuple(named.items()), self._on_error(on_error)))

    def with_columns(self, *, on_error: OnError = "dead", **named: str) -> "Stream":
        """All columns and some more: `orders.with_columns(eur="amount * 0.9")`. An existing name is replaced in its place.
        `on_error` as in `select`."""
        return self._next(WithColumnsDefinition(tuple(named.items()), self._on_error(on_error)))

    def union(self, *others: "Stream", name: str | None = None) -> "Stream":
        """The rows of this stream and others with the same columns."""
        nodes = tuple(self._other(other).node for other in others)
        return Stream(self.flow, self.flow.add(UnionDefinition(), (self.node, *nodes), name))

    def map_arrow(
        self,
        function: Callable[[pa.Table], pa.Table],
        schema: "str | Schema | pa.Schema | type",
        name: str | None = None,
        on_error: OnError = "dead",
    ) -> "Stream":
        """A Python function over Arrow tables. It must give one row for each row, and look at no other: tables are cut anywhere.
        If it raises, smaller tables find out for which rows; these are dead letters, with `on_error="null"` rows of nulls, and with
        `"stop"` they stop the flow."""
        if not callable(function):
            self.flow.here().refuse(f"cannot call {function!r}", hint="give a function that takes and gives an Arrow table")
        with self.flow.here().located():
            return self._next(MapArrowDefinition(function, Schema.of(schema), self._on_error(on_error)), name)

    def window(
        self,
        window: Kind,
        by: str | Iterable[str] = (),
        late: Late = "divert",
        allowed: Span | None = None,
        emit: Emit = "final",
        early: Span | None = None,
        name: str | None = None,
    ) -> "Windowed":
        """Rows of one key in one stretch of time: `orders.window(Tumbling("1 minute"), by="user_id").agg(n=agg.count())`.
        Kinds: Tumbling, Hopping, Sliding, Session, Count, Calendar, or one of your own (see CONTRIBUTING).

        Rows that come after their window is complete: `late="divert"` keeps them as `.late`, `"ignore"` only counts them,
        `"correct"` takes them in, up to `allowed` after the window's end, and sends the result again with a higher `revision`.
        `emit="updates"` sends results as they change and not only when they are complete; `early="10 seconds"` shows open
        windows now and then."""
        self._one_of("late", late, ("divert", "ignore", "correct"))
        self._one_of("emit", emit, ("final", "updates"))
        if not isinstance(window, Kind):
            self.flow.here().refuse(f"cannot open a window of {window!r}", hint='give its kind, e.g. Tumbling("1 minute")')
        return Windowed(self, window, _columns(by), late, self._span(allowed, "allowed"), emit, self._span(early, "early"), name)

    def group_by(self, *by: str, keep: Span | None = None, name: str | None = None) -> "Grouped":
        """Running aggregates, without a window: `readings.group_by("sensor").agg(mean=agg.avg("value"))`. One row per key, which
        changes as rows come. `keep="7 days"` lets go of keys that have been silent for so long, so that state stays bounded."""
        return Grouped(self, tuple(by), self._span(keep, "keep"), name)

    def last(self, size: Span, name: str | None = None) -> "Stream":
        """The rows of the last so long: `orders.last("5 minutes").view("recent")` grows as rows come and shrinks as time goes."""
        span = self._span(size, "size")
        assert span is not None
        return self._next(LastDefinition(span), name)

    def alert(
        self,
        when: str,
        resolve: str | None = None,
        by: str | Iterable[str] = (),
        every: Span | None = None,
        late: Late = "divert",
        name: str | None = None,
        on_error: OnError = "dead",
    ) -> "Judged":
        """The rows with which something begins and ends: `readings.alert(when="value > 90", resolve="value < 70", by="sensor")`.
        One outage is one row with `alert = 'fired'` and one with `'resolved'`, each with `since`, when it began.

        Of each key of `by` rows are taken in the order of their time. It fires with the first for which `when` holds, and is
        resolved by the next for which `resolve` does; left out, for which `when` does not. `every="1 hour"` tells again, so often,
        that it still fires; what begins anew within so long of the last time it was told is told when that is over, if it lasts.

        Over rows that change it is a table: the newest row of each key, and what all rows that hold now lead to. An action is told
        when that changes (docs/sinks/actions.md)."""
        self._one_of("late", late, ("divert", "ignore"))
        definition = AlertDefinition(when, resolve, _columns(by), self._span(every, "every"), late, self._on_error(on_error))
        return Judged(self.flow, self.flow.add(definition, (self.node,), name))

    def join(
        self,
        other: "Stream",
        on: str | Iterable[str],
        within: Within | None = None,
        how: How = "inner",
        where: str | None = None,
        late: Late = "divert",
        name: str | None = None,
        on_error: OnError = "dead",
    ) -> "Judged":
        """Pairs of rows with equal `on` whose times are at most `within` apart, either way; a pair `("-5 minutes", "30 minutes")`
        says how far the other row may lie before and after this one. `where` is a Spark SQL condition over the columns of both
        that must hold of a pair too: `where="paid >= amount"`. A pair on which it fails does not match and is a dead letter; with
        `on_error="null"` it does not match, with `"stop"` it stops the flow.

        `how="left"`, `"right"` and `"full"` also give rows of this side, the other side or both that found no partner, once none
        can come; `"semi"` gives the rows of this side that found one, each once, and `"anti"` those that found none."""
        self._one_of("how", how, get_args(How))
        self._one_of("late", late, ("divert", "ignore"))
        with self.flow.here().located():
            definition = JoinDefinition(_columns(on), bounds(within), how, late, where, self._on_error(on_error))
        return Judged(self.flow, self.flow.add(definition, (self.node, self._other(other).node), name))

    def latest(self, by: str | Iterable[str], order: str | None = None, name: str | None = None) -> "Stream":
        """A table of the newest row of each key: `readings.latest(by="sensor")`. Newest by time, or by the column `order`."""
        return self._next(LatestDefinition(_columns(by), order), name)

    def enrich(
        self,
        table: "Stream",
        on: str | Iterable[str],
        how: Literal["left", "inner"] = "left",
        as_of: AsOf = "event",
        late: Literal["keep", "correct"] = "keep",
        allowed: Span | None = None,
        wait: Span | None = None,
        history: Span | None = HISTORY,
        version: bool = False,
        name: str | None = None,
    ) -> "Stream":
        """Each row with the row of a table that was valid at its time: `orders.enrich(users, on="user_id")`. `on` names the columns
        of this stream, in the order of the table's key or by its names. `how="inner"` leaves out rows that find nothing.

        Rows are answered as soon as they come; a version that comes later counts for newer rows only. `wait="1 minute"` holds
        rows for so long, so that versions can come in; `late="correct"` with `allowed=` answers anew and sends the change. A row
        more than `history` behind its watermark finds nothing, so that old versions can go; None keeps them for ever.
        `as_of="now"` takes what the table held when the log took the row. `version=True` adds the time of the version that was
        used and its place in the log, as version_time and version_offset."""
        self._one_of("how", how, ("left", "inner"))
        self._one_of("as_of", as_of, ("event", "now"))
        self._one_of("late", late, ("keep", "correct"))
        spans = (self._span(allowed, "allowed"), self._span(wait, "wait"), self._span(history, "history"))
        definition = EnrichDefinition(_columns(on), how, as_of, late, *spans, version)
        return Stream(self.flow, self.flow.add(definition, (self.node, self._other(table).node), name))

    def lookup(
        self,
        remote: lookups.Remote,
        on: str | Iterable[str],
        schema: "str | Schema | pa.Schema | type",
        how: Literal["left", "inner"] = "left",
        *,
        cache: Span | None = "1 minute",
        cache_keys: int = 100_000,
        batch: int = 1_000,
        retries: int = 3,
        pause: Span = "200 ms",
        timeout: Span | None = "10 seconds",
        breaker: int = 10,
        rest: Span = "30 seconds",
        name: str | None = None,
        on_error: OnError = "dead",
    ) -> "Stream":
        """Each row with what somebody else answers for its key: `orders.lookup(ask, on="user_id", schema="name string, age int")`.

        `ask(keys)` gets a list of dicts with the columns of `on`, each key once and none with a null, and gives a list as long: for
        each key a dict with columns of `schema` (left out, they are null), or None. `penstock.database(…)` asks a table.
        `how="inner"` leaves out rows without an answer. Whatever follows sees one and the same answer, also when a task runs
        again; on a rebuild from the log it may be another.

        An answer counts for `cache` (None: always ask), of at most `cache_keys` keys in each process. A call has at most `batch`
        keys and takes at most `timeout`; one that fails is repeated up to `retries` times, after `pause` and then ever longer ones.
        After `breaker` failures in a row nobody is asked for `rest`. Then the epoch fails and nothing of it counts; the next one
        asks again.

        An answer that does not fit `schema`, or an exception given (not raised) as the answer for one key, makes its rows dead
        letters; with `on_error="null"` they count as unanswered, with `"stop"` the flow stops."""
        self._one_of("how", how, ("left", "inner"))
        with self.flow.here().located():
            asking = lookups.asking(cache, cache_keys, batch, retries, pause, timeout, breaker, rest)
            return self._next(lookups.given(remote, _columns(on), schema, how, asking, self._on_error(on_error)), name)

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
        if not isinstance(partitions, int) or partitions < 1:
            self.flow.here().refuse(f"cannot write topic {topic!r} with {partitions!r} partitions", hint="give a number from 1 up")
        self.flow.write(TopicDefinition(topic, _key(key), partitions), self.node)
        return self if name is None else self.named(name)

    def view(self, name: str, key: str | Iterable[str] | None = None) -> Self:
        """Serves the stream as a view. `key` names the columns that tell its rows apart."""
        self.flow.write(ViewDefinition(name, _key(key)), self.node)
        return self

    def sink(self, definition: SinkDefinition, name: str | None = None) -> Self:
        """Writes the stream to any sink. `name` is what the sink is called in the flow; its kind and target say so by default."""
        if not isinstance(definition, SinkDefinition):
            self.flow.here().refuse(f"cannot write to {definition!r}: it is no sink", hint="give a sink's definition")
        self.flow.write(definition, self.node, name)
        return self

    def step(self, definition: Definition, *others: "Stream", name: str | None = None) -> "Judged":
        """A step of your own over this stream and others: see CONTRIBUTING."""
        inputs = (self.node, *(self._other(other).node for other in others))
        return Judged(self.flow, self.flow.add(definition, inputs, name))

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

    def _span(self, given: Span | None, what: str) -> timedelta | None:
        if given is None:
            return None
        with self.flow.here().located():
            span = time.duration(given, what)
        if not span and what not in ("allowed", "wait", "history"):
            self.flow.here().refuse(f"{what} must be greater than zero", hint=f'write it like {what}="5 minutes"')
        return span

    def _on_error(self, given: OnError) -> OnError:
        self._one_of("on_error", given, get_args(OnError))
        return given

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
    window: Kind
    by: tuple[str, ...]
    late: Late
    allowed: timedelta | None = None
    emit: Emit = "final"
    early: timedelta | None = None
    name: str | None = None

    def agg(self, **aggregates: Agg | str | None) -> Judged:
        """One row for each key and window: `agg(n=agg.count(), total=agg.sum("amount"))`. `name="…"` names the step;
        `on_error="dead" | "null" | "stop"` says what becomes of rows on which an expression or `agg.own` fails."""
        flow, (named, name, on_error) = self.stream.flow, _aggregates(self.stream, aggregates)
        definition = WindowDefinition(self.window, self.by, named, self.late, self.allowed, self.emit, self.early, on_error)
        return Judged(flow, flow.add(definition, (self.stream.node,), self.name if name is None else name))


@dataclass(frozen=True)
class Grouped:
    """Keys that wait for their running aggregates."""

    stream: Stream
    by: tuple[str, ...]
    keep: timedelta | None = None
    name: str | None = None

    def agg(self, **aggregates: Agg | str | None) -> Stream:
        """One row for each key: `agg(mean=agg.avg("value"))`. `name="…"` names the step, and `on_error=` is as in a window."""
        flow, (named, name, on_error) = self.stream.flow, _aggregates(self.stream, aggregates)
        definition = RunningDefinition(self.by, named, self.keep, on_error)
        return Stream(flow, flow.add(definition, (self.stream.node,), self.name if name is None else name))


def _aggregates(stream: Stream, given: Mapping[str, Agg | str | None]) -> tuple[tuple[tuple[str, Agg], ...], str | None, OnError]:
    """The aggregates among what was given, the name of the step, and what becomes of rows on which it fails."""
    name, on_error = given.get("name"), given.get("on_error", "dead")
    for column, one in given.items():
        if not isinstance(one, Agg) and (column not in ("name", "on_error") or not isinstance(one, str | None)):
            hint = f'give an aggregate, e.g. {column}=agg.sum("amount")'
            stream.flow.here().refuse(f"cannot aggregate {column}={one!r}", hint=hint)
    named = tuple((column, one) for column, one in given.items() if isinstance(one, Agg))
    wanted: OnError = "dead" if isinstance(on_error, Agg) else stream._on_error(on_error)  # type: ignore[arg-type]
    return named, name if isinstance(name, str) else None, wanted


def _columns(given: str | Iterable[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _key(given: str | Iterable[str] | None) -> tuple[str, ...] | None:
    return None if given is None else _columns(given)
