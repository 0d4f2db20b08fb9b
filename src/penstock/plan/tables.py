"""Tables, and what is made of their rows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import ClassVar, Literal

from penstock.core.time import NEVER, duration_text, micros
from penstock.plan.node import Facts, How, Meaning, Node, span
from penstock.plan.windows import Aggregate, Aggregating


@dataclass(frozen=True)
class Latest(Node):
    """The current row of each key: the greatest (time, position), or (order, time, position); deletes are remembered."""

    family: ClassVar[str] = "latest"

    by: tuple[str, ...]
    order: str | None = None  # a column that goes before the time
    by_position: bool = False  # position alone: where records know their place in the database they come from

    def facts(self) -> Facts:
        yield "by", ", ".join(self.by)
        order = "place in the database" if self.by_position else ", ".join([*([self.order] if self.order else []), "time"])
        yield "keeps", f"the newest by {order}"

    def always(self, given: Sequence[str]) -> set[str]:
        return {*self.by, *((self.order,) if self.order else ())}

    def keyed_by(self) -> list[tuple[str, ...]]:
        return [self.by]

    def over_ordered(self) -> "Latest":
        return replace(self, by_position=True)

    @property
    def keeps_append_times(self) -> bool:
        return True

    def key_never_null(self, above: Sequence[bool]) -> bool:
        """What has null in its key is a dead letter, or an error, where a table is read; `latest` of a stream takes it."""
        return not above

    def meaning(self) -> Meaning:
        return {"is": "latest/1", "by": list(self.by), "order": self.order, "by_position": self.by_position}


@dataclass(frozen=True)
class Enrich(Node):
    """Each row with the version of a table that was valid at its time; the second input gives versions."""

    family: ClassVar[str] = "enrich"

    on: tuple[str, ...]
    key: tuple[str, ...]  # the columns of the table, in the order of `on`
    how: Literal["left", "inner"]
    as_of: Literal["event", "now"]
    right: tuple[tuple[str, str], ...]  # output name -> column of the table
    correct: bool = False  # answers change when a version comes late, up to `allowed`
    allowed: timedelta = timedelta()
    wait: timedelta | None = None
    history: timedelta | None = None  # None: for ever
    version: tuple[str, str] | None = None  # columns that tell the time and the place of the version that was used

    def facts(self) -> Facts:
        same = self.on == self.key
        pairs = [mine if same else f"{mine} = {theirs}" for mine, theirs in zip(self.on, self.key, strict=True)]
        yield "on", f"{', '.join(pairs)}, {self.how}"
        yield "as of", "the row's time" if self.as_of == "event" else "the time the log took the row"
        if self.wait is not None:
            yield "waits", duration_text(self.wait)
        if self.correct:
            yield "corrects", f"answers, up to {duration_text(self.allowed)}"
        if self.as_of == "event":
            yield "history", duration_text(self.history) if self.history is not None else "for ever"

    def reads(self, wanted: set[str], above: Sequence[Sequence[str]]) -> list[set[str]]:
        own, version = dict(self.right), set(self.version or ())
        mine = {*self.on, *(n for n in wanted if n not in own and n not in version)}
        return [mine, {*self.key, *(own[n] for n in wanted if n in own)}]

    def narrowed(self, given: Sequence[str]) -> "Enrich":
        return replace(self, right=tuple(r for r in self.right if r[0] in given))

    @property
    def answers_rows(self) -> bool:
        return True

    def corrected(self) -> timedelta:
        return self.allowed if self.correct else timedelta()

    @property
    def wants_append_times(self) -> bool:
        return self.as_of == "now"

    def keyed_by(self) -> list[tuple[str, ...]]:
        return [self.on, self.key]

    def closed(self, newest: Sequence[int], end: int) -> int | None:
        """Rows that wait, or are answered again; and the older versions of a table, which rows within `history` look for."""
        stream, table = newest
        held, old = NEVER, NEVER
        if self.wait or self.correct:
            held = stream + micros((self.wait or timedelta()) + self.allowed) + 1
        if self.as_of == "event" and self.history is not None and table > NEVER:
            old = table + micros(self.history)
        return max(held, old) if max(held, old) > NEVER else None

    @property
    def keeps_append_times(self) -> bool:
        return True

    def meaning(self) -> Meaning:
        return {
            "is": "enrich/1",
            "on": list(self.on),
            "key": list(self.key),
            "how": self.how,
            "as_of": self.as_of,
            "right": [list(pair) for pair in self.right],
            "correct": self.correct,
            "allowed": span(self.allowed),
            "wait": span(self.wait),
            "history": span(self.history),
            "version": list(self.version) if self.version else None,
        }


@dataclass(frozen=True)
class TableJoin(Node):
    """The rows of two tables with equal `on`, as they are now."""

    family: ClassVar[str] = "table-join"

    on: tuple[str, ...]
    how: How
    right: tuple[tuple[str, str], ...]  # output name -> name on the right side, without `on`
    keys: tuple[tuple[str, ...], tuple[str, ...]]  # what names a row of either side; () = its position
    key: tuple[str, ...]  # what names a row of the output; () = its position

    @property
    def kind(self) -> str:
        return "join of tables"

    def facts(self) -> Facts:
        yield "on", f"{', '.join(self.on)}, {self.how}"
        yield "key", ", ".join(self.key) or "its position"

    def always(self, given: Sequence[str]) -> set[str]:
        return {*self.on, *self.key}

    def reads(self, wanted: set[str], above: Sequence[Sequence[str]]) -> list[set[str]]:
        own, (left, right) = dict(self.right), self.keys
        mine = {*self.on, *left, *(n for n in wanted if n not in own)}
        return [mine, {*self.on, *right, *(own[n] for n in wanted if n in own)}]

    def keyed_by(self) -> list[tuple[str, ...]]:
        return [names for names in (self.on, self.key, *self.keys) if names]

    def narrowed(self, given: Sequence[str]) -> "TableJoin":
        return replace(self, right=tuple(r for r in self.right if r[0] in given))

    def meaning(self) -> Meaning:
        return {
            "is": "table-join/1",
            "on": list(self.on),
            "how": self.how,
            "right": [list(pair) for pair in self.right],
            "keys": [list(names) for names in self.keys],
            "key": list(self.key),
        }


@dataclass(frozen=True)
class Grouping(Aggregating):
    """Aggregates over the current rows of a table."""

    family: ClassVar[str] = "grouping"

    by: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    key: tuple[str, ...]  # what names a row of the table; () = its position

    @property
    def kind(self) -> str:
        return "running"

    def extent(self) -> Facts:
        yield "over", "the current rows"

    def reads(self, wanted: set[str], above: Sequence[Sequence[str]]) -> list[set[str]]:
        return [{*self.by, *self.key, *(c for a in self.aggregates for c in a.columns)}]

    def keyed_by(self) -> list[tuple[str, ...]]:
        return [names for names in (self.by, self.key) if names]

    def own_key(self) -> tuple[str, ...]:
        return self.by

    def meaning(self) -> Meaning:
        return {"is": "grouping/1", **self.made(), "key": list(self.key)}
