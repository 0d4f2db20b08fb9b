"""Steps that look at one row at a time, and those that only pass rows on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal

import pyarrow as pa

from penstock.core.expression import Column, Expression
from penstock.core.schema import Schema
from penstock.plan.node import Facts, Meaning, Node, called, expression, runs_on
from penstock.plan.remote import Remote


class Conditional(Node):
    """Looks at each row, and leaves its columns as they are."""

    condition: Expression

    def reads(self, wanted: set[str], above: Sequence[Sequence[str]]) -> list[set[str]]:
        return [wanted | set(self.condition.columns)]

    @property
    def keeps_columns(self) -> bool:
        return True

    @property
    def keeps_rows(self) -> bool:
        return True


@dataclass(frozen=True)
class Where(Conditional):
    """Keeps the rows for which the condition holds."""

    condition: Expression

    def facts(self) -> Facts:
        yield "keeps", f"{self.condition.text}  [{runs_on(self.condition)}]"

    @property
    def needs_sql(self) -> bool:
        return self.condition.tree is None

    def kept_by(self) -> Expression:
        return self.condition

    def computed(self) -> Sequence[tuple[str, Expression]]:
        return [("", self.condition)]

    @property
    def keeps_append_times(self) -> bool:
        return True

    def key_never_null(self, above: Sequence[bool]) -> bool:
        return bool(above) and all(above)

    def meaning(self) -> Meaning:
        return {"is": "where/1", "condition": expression(self.condition)}


@dataclass(frozen=True)
class Hidden(Conditional):
    """Versions for which the condition does not hold become deletes: the row is not in the table then."""

    condition: Expression

    def facts(self) -> Facts:
        yield "keeps", f"{self.condition.text}, else deleted  [{runs_on(self.condition)}]"

    def meaning(self) -> Meaning:
        return {"is": "hidden/1", "condition": expression(self.condition)}


@dataclass(frozen=True)
class Select(Node):
    """select and with_columns alike: all output columns in order."""

    columns: tuple[tuple[str, Expression], ...]

    def facts(self) -> Facts:
        for name, e in self.columns:
            if not _passed_on(name, e):
                yield "makes", f"{name} = {e.text}  [{runs_on(e)}]"

    def reads(self, wanted: set[str], above: Sequence[Sequence[str]]) -> list[set[str]]:
        return [{c for name, e in self.columns if name in wanted for c in e.columns}]

    def narrowed(self, given: Sequence[str]) -> "Select":
        return replace(self, columns=tuple(c for c in self.columns if c[0] in given))

    @property
    def keeps_rows(self) -> bool:
        return True

    @property
    def needs_sql(self) -> bool:
        return any(e.tree is None for _, e in self.columns)

    def projected(self) -> Sequence[tuple[str, Expression]]:
        return self.columns

    def computed(self) -> Sequence[tuple[str, Expression]]:
        return [(name, e) for name, e in self.columns if not isinstance(e.tree, Column)]

    @property
    def keeps_append_times(self) -> bool:
        return True

    def key_never_null(self, above: Sequence[bool]) -> bool:
        return bool(above) and all(above)

    def meaning(self) -> Meaning:
        return {"is": "select/1", "columns": [[name, expression(e)] for name, e in self.columns]}


@dataclass(frozen=True)
class MapArrow(Node):
    """A function of the user's own, which gives one row for each row."""

    function: Callable[[pa.Table], pa.Table]

    @property
    def kind(self) -> str:
        return "map"

    def facts(self) -> Facts:
        yield "calls", f"{called(self.function)}  [python]"

    def always(self, given: Sequence[str]) -> set[str]:
        return set(given)

    def reads(self, wanted: set[str], above: Sequence[Sequence[str]]) -> list[set[str]]:
        return [set(above[0])]

    @property
    def keeps_rows(self) -> bool:
        return True

    @property
    def needs_position(self) -> bool:
        return True  # its dead letters say where rows come from

    @property
    def keeps_append_times(self) -> bool:
        return True

    def meaning(self) -> Meaning:
        return {"is": "map/1"}  # a mended function is the same step


@dataclass(frozen=True)
class Asking:
    """How somebody outside is asked."""

    cache: timedelta  # how long an answer counts
    cache_keys: int  # answers that a process keeps; the least recently used goes
    batch: int  # keys a call
    retries: int
    pause: timedelta  # before the first retry; it grows
    timeout: timedelta | None
    breaker: int  # failures in a row after which nobody is asked for `rest`
    rest: timedelta


@dataclass(frozen=True)
class Lookup(Node):
    """Each row with what somebody else answers for its key. What follows it reads answers from files: they are given once."""

    remote: Callable[[list[dict[str, Any]]], list[dict[str, Any] | None]] | Remote
    on: tuple[str, ...]
    how: Literal["left", "inner"]
    answers: Schema
    asking: Asking
    keys: tuple[pa.DataType, ...] = ()  # the types of `on`; (): as their values tell

    def facts(self) -> Facts:
        yield "on", f"{', '.join(self.on)}, {self.how}"
        yield "asks", self.remote.called if isinstance(self.remote, Remote) else called(self.remote)

    def reads(self, wanted: set[str], above: Sequence[Sequence[str]]) -> list[set[str]]:
        return [{*self.on, *(n for n in wanted if n not in self.answers)}]

    @property
    def keeps_rows(self) -> bool:
        return True

    @property
    def staged(self) -> bool:
        return True

    @property
    def keeps_append_times(self) -> bool:
        return True

    def meaning(self) -> Meaning:
        return {"is": "lookup/1", "on": list(self.on), "how": self.how, "answers": self.answers.ddl()}


@dataclass(frozen=True)
class Union(Node):
    """The rows of all inputs."""

    @property
    def needs_position(self) -> bool:
        return True  # rows of one place may come by two inputs

    @property
    def keeps_rows(self) -> bool:
        return True

    @property
    def keeps_append_times(self) -> bool:
        return True

    def meaning(self) -> Meaning:
        return {"is": "union/1"}


@dataclass(frozen=True)
class LateRows(Node):
    """The rows that the input step diverted from one of its inputs, with the columns of this step's schema."""

    port: int = 0  # which input of the step they came in by: a join has two

    @property
    def kind(self) -> str:
        return "late rows"

    @property
    def tap(self) -> int:
        return self.port

    def facts(self) -> Facts:
        yield "takes", f"the late rows of its input {self.port + 1}" if self.port else "the late rows"

    @property
    def keeps_rows(self) -> bool:
        return True

    def meaning(self) -> Meaning:
        return {"is": "late/1", "port": self.port}


def _passed_on(name: str, e: Expression) -> bool:
    """Whether a column is given as it comes in."""
    return e.tree == Column(name, e.type)
