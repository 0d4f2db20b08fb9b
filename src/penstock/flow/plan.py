"""A checked flow: steps in order, every schema and expression resolved. What the engine runs and `plan` prints."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, Literal

import pyarrow as pa

from penstock.core.expression import Expression
from penstock.core.schema import Schema
from penstock.flow.plan_joins import How as How
from penstock.flow.plan_joins import Join as Join
from penstock.flow.plan_joins import Late as Late
from penstock.flow.plan_joins import Matched as Matched
from penstock.flow.plan_joins import Pairs as Pairs
from penstock.flow.plan_joins import StreamJoin as StreamJoin
from penstock.flow.plan_joins import TableJoin as TableJoin

Emit = Literal["final", "updates"]
OnError = Literal["dead", "null", "stop"]  # what becomes of a row on which a step fails

DEAD_LIMIT = 0.5


@dataclass(frozen=True)
class Origin:
    """Where in the user's program a step was written."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


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


@dataclass(frozen=True)
class Source:
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
    def reads(self) -> tuple[str, ...]:
        """The columns that say the time; of a table also its key and what becomes of its rows."""
        table = (*self.versions.key, *((self.versions.op,) if self.versions.op else ())) if self.versions else ()
        return (*((self.time,) if self.time else ()), *(self.clock.reads if self.clock else ()), *table)

    @property
    def made(self) -> frozenset[str]:
        """The columns that are not in the topic."""
        clock = (self.clock.corrected, self.clock.uncertainty) if self.clock else ()
        return frozenset((*clock, *((self.append_time,) if self.append_time else ())))


@dataclass(frozen=True)
class Where:
    condition: Expression


@dataclass(frozen=True)
class Hidden:
    """Versions for which the condition does not hold become deletes: the row is not in the table then."""

    condition: Expression


@dataclass(frozen=True)
class Select:
    """select and with_columns alike: all output columns in order."""

    columns: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True)
class MapArrow:
    function: Callable[[pa.Table], pa.Table]


@dataclass(frozen=True)
class Database:
    """A table of a database, asked by key."""

    connect: str | Callable[[], Any]  # a URL sqlite:///path, or what gives a DB-API connection
    table: str
    key: tuple[str, ...] = ()  # its columns, in the order of `on`; (): called as they are there
    paramstyle: str | None = None  # None: as the driver's module says


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
class Lookup:
    """Each row with what somebody else answers for its key. What follows it reads answers from files: they are given once."""

    remote: Callable[[list[dict[str, Any]]], list[dict[str, Any] | None]] | Database
    on: tuple[str, ...]
    how: Literal["left", "inner"]
    answers: Schema
    asking: Asking


@dataclass(frozen=True)
class Union:
    pass


@dataclass(frozen=True)
class LateRows:
    """The rows that the input step diverted from one of its inputs, with the columns of this step's schema."""

    port: int = 0  # which input of the step they came in by: a join has two


@dataclass(frozen=True)
class Aggregate:
    name: str
    function: str
    column: str | None  # None: of rows
    type: pa.DataType  # of the result
    others: tuple[str, ...] = ()  # further columns it reads
    options: tuple[Any, ...] = ()  # what else the function was given, in its own order

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column, *self.others) if self.column else self.others


@dataclass(frozen=True)
class Spaced:
    """Windows of one size, one every so often; side by side, overlapping, or with gaps. Aligned to 1970 + offset."""

    size: timedelta
    every: timedelta
    offset: timedelta = timedelta()


@dataclass(frozen=True)
class Calendar:
    """Days, weeks or months as the clocks of a time zone have them."""

    unit: Literal["day", "week", "month"]
    zone: str


@dataclass(frozen=True)
class Window:
    """Windows that lie fixed in time."""

    family: ClassVar[str] = "window"

    by: tuple[str, ...]
    layout: Spaced | Calendar
    aggregates: tuple[Aggregate, ...]
    late: Late = "divert"
    allowed: timedelta = timedelta()
    emit: Emit = "final"
    early: timedelta | None = None  # how often windows that are not complete are shown under emit="final"


@dataclass(frozen=True)
class Session:
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


@dataclass(frozen=True)
class Count:
    """Every so many rows of a key, in the order (time, position)."""

    family: ClassVar[str] = "count"

    by: tuple[str, ...]
    rows: int
    aggregates: tuple[Aggregate, ...]
    late: Late = "divert"


@dataclass(frozen=True)
class Sliding:
    """For each row the rows of its key in (t - size, t]."""

    family: ClassVar[str] = "sliding"

    by: tuple[str, ...]
    size: timedelta
    aggregates: tuple[Aggregate, ...]
    late: Late = "divert"


@dataclass(frozen=True)
class Running:
    """One row per key over all its rows; with `keep`, over those since it was last silent for so long."""

    family: ClassVar[str] = "running"
    late: ClassVar[str] = "none"  # it judges nothing

    by: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    keep: timedelta | None = None


@dataclass(frozen=True)
class Last:
    """The rows with t > F - size: they come, and go as time goes on."""

    family: ClassVar[str] = "last"
    late: ClassVar[str] = "none"

    size: timedelta


@dataclass(frozen=True)
class Latest:
    """The current row of each key: the greatest (time, position), or (order, time, position); deletes are remembered."""

    family: ClassVar[str] = "latest"
    late: ClassVar[str] = "none"

    by: tuple[str, ...]
    order: str | None = None  # a column that goes before the time
    by_position: bool = False  # position alone: where records know their place in the database they come from


@dataclass(frozen=True)
class Enrich:
    """Each row with the version of a table that was valid at its time; the second input gives versions."""

    family: ClassVar[str] = "enrich"
    late: ClassVar[str] = "none"

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


@dataclass(frozen=True)
class Grouping:
    """Aggregates over the current rows of a table."""

    family: ClassVar[str] = "grouping"
    late: ClassVar[str] = "none"

    by: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    key: tuple[str, ...]  # what names a row of the table; () = its position


# Steps with state; their `family` names the kernels that run them.
Aggregating = Window | Session | Count | Sliding | Running | Grouping
Keyed = Aggregating | Last | StreamJoin | Latest | Enrich | TableJoin
Definition = Source | Where | Hidden | Select | MapArrow | Lookup | Union | LateRows | Keyed


@dataclass(frozen=True)
class Step:
    """One step. It gives exactly the columns of its schema; what comes in may have more."""

    name: str
    inputs: tuple[str, ...]
    definition: Definition
    schema: Schema
    origin: Origin
    updating: bool = False
    on_error: OnError = "dead"  # no part of what the step means: state lives on when it changes


@dataclass(frozen=True)
class Output:
    kind: Literal["topic", "view"]
    name: str
    input: str
    key: tuple[str, ...]  # view: the columns that name a row, () = its position; topic: the columns of the record's key
    partitions: int
    origin: Origin


@dataclass(frozen=True)
class Plan:
    flow: str
    steps: tuple[Step, ...]  # every step after its inputs
    outputs: tuple[Output, ...]
    dead_limit: float | None = DEAD_LIMIT  # the share of failing rows beyond which the flow stops; None: none

    def step(self, name: str) -> Step:
        return next(s for s in self.steps if s.name == name)
