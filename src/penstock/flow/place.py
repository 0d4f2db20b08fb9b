"""The place a message speaks of, and the checks that every step makes there."""

import difflib
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa

from penstock.core.expression import Expression
from penstock.core.names import check_column
from penstock.core.schema import Schema, type_text
from penstock.errors import BadFlow
from penstock.flow.sql.analyzer import Analyzer
from penstock.plan import Origin
from penstock.plan.origin import located

if TYPE_CHECKING:
    from penstock.flow.definition import Known
    from penstock.flow.facts import Facts


@dataclass(frozen=True)
class Place:
    """A step of a flow, or the flow alone while it is being written."""

    flow: str
    origin: Origin
    step: str | None = None

    def __str__(self) -> str:
        step = f', step "{self.step}"' if self.step else ""
        return f"flow {self.flow}{step} ({self.origin})"

    def refuse(self, what: str, *detail: str, hint: str | None = None) -> NoReturn:
        raise BadFlow(what, str(self), *detail, hint=hint)

    def located(self) -> AbstractContextManager[None]:
        """Errors about a value the user gave say where it was given."""
        return located(self)

    def column(self, name: str, schema: Schema, doing: str) -> str:
        """The declared name of a column, found as Spark finds it: without regard to case."""
        found = find(name, schema.names)
        if found is None:
            self.refuse(f"cannot {doing}: there is no column {name!r}", hint=_columns_hint(name, schema.names))
        return found

    def columns(self, names: Iterable[str], schema: Schema, doing: str) -> tuple[str, ...]:
        """The declared names of several columns, none of them twice."""
        found: list[str] = []
        for name in names:
            column = self.column(name, schema, doing)
            if column in found:
                self.refuse(f"cannot {doing}: column {column!r} is named twice")
            found.append(column)
        return tuple(found)

    def keyable(self, name: str, schema: Schema, doing: str) -> None:
        """Refuses a column whose values cannot be told apart by hash and order: nested ones."""
        if not keyable(schema.type(name)):
            self.refuse(
                f"cannot {doing}: {name!r} is {type_text(schema.type(name))}, which cannot be a key",
                hint="take the part that tells rows apart into a column of its own with with_columns first",
            )

    def new_columns(self, names: Sequence[str], doing: str, hint: str) -> None:
        """Refuses output columns that Spark could not tell apart."""
        for i, name in enumerate(names):
            other = find(name, names[:i])
            if other is not None:
                case = "" if other == name else f" ({other!r} differs in case only)"
                self.refuse(f"cannot {doing}: two columns would be called {name!r}{case}", hint=hint)


@dataclass(frozen=True, kw_only=True)
class At(Place):
    """A step while it is being checked."""

    chosen: bool  # its name was chosen by the user: by name= or by what it writes
    analyzer: Analyzer
    topics: "Facts | None" = None  # of the log; None: there is none, as in a test

    @property
    def name(self) -> str:
        return self.step or ""

    def label(self, above: "Known") -> str:
        """What to call the rows of a step that passes rows on: its own name if the user chose one, else where they come from."""
        return self.name if self.chosen else above.label

    def expression(self, sql: str, schema: Schema) -> Expression:
        """Spark SQL text as a checked expression over the columns."""
        from penstock.flow.sql.expression import read  # sqlglot is loaded when a flow is checked, not when it is written

        return read(sql, schema, self, self.analyzer)

    def new_name(self, name: str) -> str:
        with self.located():
            return check_column(name)


def find(name: str, names: Sequence[str]) -> str | None:
    """The one of the names that equals this one, case aside."""
    return next((n for n in names if n.lower() == name.lower()), None)


def _columns_hint(name: str, names: Sequence[str]) -> str:
    lowered = {n.lower(): n for n in names}
    close = [lowered[c] for c in difflib.get_close_matches(name.lower(), lowered, n=3, cutoff=0.6)]
    if close:
        return f"did you mean {' or '.join(close)}? the columns are {', '.join(names)}"
    return f"the columns are {', '.join(names)}"


def keyable(t: pa.DataType) -> bool:
    """Whether values of a type can be told apart by hash and order: every type but nested ones."""
    return not pa.types.is_nested(t)
