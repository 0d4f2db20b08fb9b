"""What a step of a plan is, and what it is asked: every kind of step answers for itself, in the file of its family."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, is_dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import pyarrow as pa

from penstock.core.expression import Expression
from penstock.core.schema import type_text
from penstock.core.time import micros

if TYPE_CHECKING:
    from penstock.plan.layouts import Layout
    from penstock.plan.windows import Aggregate

Late = Literal["divert", "ignore", "correct"]
Emit = Literal["final", "updates"]
How = Literal["inner", "left", "right", "full", "semi", "anti"]
OnError = Literal["dead", "null", "stop"]  # what becomes of a row on which a step fails

Facts = Iterator[tuple[str, str]]  # label and text, for people
Meaning = dict[str, Any]  # as JSON can hold it


@dataclass(frozen=True)
class Judging:
    """How a step judges rows: by the windows they are in, or where it has none by their own time."""

    late: Late
    layout: "Layout | None" = None  # of fixed windows
    corrects: bool = False  # whether it offers late="correct"
    allowed: timedelta = timedelta()  # how long after its end a window is corrected


class Sides(NamedTuple):
    """How the columns of a joined row are called on its sides."""

    on: tuple[str, ...]  # on both
    right: tuple[tuple[str, str], ...]  # name in the joined row -> name on the right side; all others are of the left


class Node(ABC):
    """What a step does: a frozen value that knows neither rows nor files."""

    family: ClassVar[str | None] = None  # names the kernel of a step with state; None: it has no state

    @property
    def kind(self) -> str:
        """What people call it."""
        return type(self).__name__.lower()

    def facts(self) -> Facts:
        """What it does, for `penstock plan`."""
        yield from ()

    @abstractmethod
    def meaning(self) -> Meaning:
        """What its results depend on. A change of it is another step: state and outputs belong to what they were made by. The key
        `is` names the kind of step and the version of this description."""

    def always(self, given: Sequence[str]) -> set[str]:
        """The columns that it gives whether or not anybody reads them. given: all of them."""
        return set()

    def reads(self, wanted: set[str], above: Sequence[Sequence[str]]) -> list[set[str]]:
        """The columns it reads from each of its inputs to give those that are wanted. above: the columns of the inputs."""
        return [set(wanted) for _ in above]

    def narrowed(self, given: Sequence[str]) -> Self:
        """The same where these columns are given and no others."""
        return self

    @property
    def keeps_columns(self) -> bool:
        """It gives rows with whatever columns they come in."""
        return False

    @property
    def keeps_rows(self) -> bool:
        """It gives at most one row for each row, at once: the order of the log stays."""
        return False

    @property
    def needs_sql(self) -> bool:
        """Only Spark SQL may evaluate it."""
        return False

    @property
    def staged(self) -> bool:
        """Its rows go through files before anybody reads them: what it gives is given once."""
        return False

    @property
    def tap(self) -> int | None:
        """It takes the late rows of this input of the step above, and not what that step gives."""
        return None

    @property
    def needs_position(self) -> bool:
        """It has to know where rows come from. Asked of steps without state; of the others their kernels know."""
        return False

    @property
    def answers_rows(self) -> bool:
        """It answers rows of its first input from versions that its second one gives."""
        return False

    def corrected(self) -> timedelta:
        """How far back it answers rows again."""
        return timedelta()

    def shows_early(self) -> timedelta | None:
        """How often it shows windows that are not complete; None: never."""
        return None

    def settles(self) -> timedelta | None:
        """How long behind its time a row that it has given can still change or go; None: for ever. Asked where rows change."""
        return None

    def forgets(self) -> timedelta | None:
        """After how long a silence it lets go of a key; None: never."""
        return None

    @property
    def wants_append_times(self) -> bool:
        return False

    @property
    def keeps_append_times(self) -> bool:
        """Each of its rows came from the log as one row, at a time that is known."""
        return False

    def with_append_times(self) -> Self:
        """The same, giving the append times of its rows, where it reads them."""
        return self

    def reads_topic(self) -> str | None:
        """The topic that it reads itself."""
        return None

    def key_never_null(self, above: Sequence[bool]) -> bool:
        """Whether the columns that name its rows are never null. above: the same of its inputs; a table has none."""
        return False

    def kept_by(self) -> Expression | None:
        """The condition under which a row stays; None where all do."""
        return None

    def projected(self) -> Sequence[tuple[str, Expression]]:
        """The columns that it gives as expressions over those it gets, where it does nothing else."""
        return ()

    def computed(self) -> Sequence[tuple[str, Expression]]:
        """The expressions that are worked out for every row, by the column they give; "" for a condition."""
        return ()

    def judging(self) -> Judging | None:
        """How it judges rows; None where it calls none late."""
        return None

    def aggregated(self) -> "Sequence[Aggregate]":
        return ()

    def aggregating(self, aggregates: "tuple[Aggregate, ...]") -> Self:
        """The same with other aggregates."""
        return self

    def sides(self) -> Sides | None:
        """Of a join: how its columns are called on both sides, for late rows are given in the columns of the joined row."""
        return None

    def keyed_by(self) -> list[tuple[str, ...]]:
        """The columns by which it knows rows, its own key first."""
        return []

    def own_key(self) -> tuple[str, ...]:
        """The columns by which it brings rows together."""
        return next(iter(self.keyed_by()), ())

    def closed(self, newest: Sequence[int], end: int) -> int | None:
        """The least F behind which no row that came in can be met, or looked back upon, by one still to come; None where nothing
        is ever closed. newest: the greatest time at each input; end: of the last fixed window that holds the newest row, where
        there are none just behind it."""
        return None

    def newest_given(self, newest: Sequence[int], closed: int) -> int:
        """The greatest time that its rows can have, once everything up to `closed` is closed."""
        return newest[0] if len(newest) == 1 else max(newest)

    def once(self) -> frozenset[str] | None:
        """The columns that no two of its rows share, as long as rows do not change; None where there are none."""
        return None

    def over_ordered(self) -> Self:
        """The same over a topic in which the last record of a key holds."""
        return self


def kinds(of: type[Node] = Node) -> Iterator[type[Node]]:
    """Every kind of step that Penstock has itself."""
    for kind in of.__subclasses__():
        if kind.__module__.startswith("penstock."):
            yield from [kind] if is_dataclass(kind) else []
            yield from kinds(kind)


def runs_on(e: Expression) -> str:
    return "spark" if e.tree is None else "polars"


def called(function: Callable[..., Any]) -> str:
    """A user's function by its name."""
    return str(getattr(function, "__qualname__", repr(function)))


# what meanings are made of


def span(value: timedelta | None) -> int | None:
    """Microseconds."""
    return None if value is None else micros(value)


def expression(e: Expression | None) -> Meaning | None:
    return None if e is None else {"text": e.text, "type": type_text(e.type)}


def plain(value: Any) -> Any:
    """A setting as JSON can hold it; of a function its name, for another process has it elsewhere."""
    if isinstance(value, timedelta):
        return {"us": micros(value)}
    if isinstance(value, pa.DataType):
        return {"type": type_text(value)}
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    if callable(value):
        return {"function": called(value)}
    if hasattr(value, "__dataclass_fields__"):
        return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return value
