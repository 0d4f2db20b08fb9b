"""What an engine gives: the changes of a database's tables in batches that can be made again exactly, should a kill come between.

Whoever runs an engine writes the intent of a batch down before the batch itself. After a kill the engine is asked for the batch of
that intent once more: the same changes in the same order, whatever has happened in the database since. That is why a batch that has
reached some topics and not others can be finished, with nothing lost and nothing doubled."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Flags = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]

Table = tuple[str, str]  # schema, table; the schema is empty where a database has none
Json = Mapping[str, Any]  # what can be written as a JSON object

CREATE, UPDATE, DELETE, READ = b"cudr"  # READ: a row of a snapshot
UNKNOWN = "\0"  # stands in `Changes.after` where a value belongs that the database did not send; no JSON has it


@dataclass(frozen=True)
class Transactions:
    """The transactions of a batch in the order of their commits. The parts of a snapshot are transactions of their own."""

    id: pa.Array  # of utf8: what `transaction.id` says
    xid: Places  # what `source.txId` says; -1 where there is none
    lsn: Places  # what `source.lsn` says: grows from each transaction to the next; -1 where the engine gives `source` itself
    time: Places  # of the commit, microseconds since 1970; never goes back
    begins: Flags  # false: it has begun in an earlier batch
    ends: Flags  # false: it goes on in the next batch; of the last one only

    def __len__(self) -> int:
        return len(self.id)


@dataclass(frozen=True)
class Unchanged:
    """Values that changes left as they were, and that the database did not send: `after` has UNKNOWN in their place. Those of a
    create, which then stands right behind the delete of its old key, are the ones that its row had under that key."""

    columns: Mapping[str, Flags]  # in the order of `after`: which changes do not tell the column
    current: Callable[[Places], Mapping[int, Mapping[str, str]]]
    """What the database says now of the rows of these changes: by change and column, as JSON, without the rows that are gone."""


@dataclass(frozen=True)
class Changes:
    """Changes of one table, in their order. A change of the key is a delete of the old one and a create of the new one."""

    table: Table
    op: Bytes  # CREATE, UPDATE, DELETE or READ
    key: pa.Array  # of utf8: a JSON object with the columns of the key, in their order
    before: pa.Array  # of utf8: the row as it was, a JSON object; null where the database did not say
    after: pa.Array  # of utf8: the row as it is; null for a delete
    transaction: Places  # which of the batch's transactions
    index: Places  # orders the changes of a transaction over all tables; ties stand as they are given
    source: pa.Array | None = None  # of utf8: `source` as a JSON object, where the engine knows more than transactions say
    unchanged: Unchanged | None = None  # None: everything is told

    def __len__(self) -> int:
        return len(self.op)


@dataclass(frozen=True)
class Truncate:
    """All rows of a table go."""

    table: Table
    transaction: int
    index: int
    source: str | None = None  # as in Changes


@dataclass(frozen=True)
class TableFacts:
    """A table as it is now: what a flow needs to know to read its topic."""

    schema: str  # columns and types as a topic's schema is written
    key: tuple[str, ...]


@dataclass(frozen=True)
class Batch:
    """Changes that are written together. `intent`: what the engine needs in order to make it again. `position`: what it needs in
    order to go on behind it."""

    intent: Json
    position: Json
    transactions: Transactions
    changes: Sequence[Changes] = ()
    truncates: Sequence[Truncate] = ()
    tables: Mapping[Table, TableFacts] = field(default_factory=dict)  # those that are new or have changed
    copy: bool = False  # rows of a table as they are: those that a change has told of already need not be told again


@dataclass(frozen=True)
class SnapshotProgress:
    """How far the copy of a table has come."""

    table: Table
    rows: int
    estimate: int  # of all rows


@dataclass(frozen=True)
class Status:
    """What there is to say of a running engine."""

    lag_bytes: int | None = None  # of the database's log that were not read yet
    kept_bytes: int | None = None  # of it that the database keeps for us
    snapshots: Sequence[SnapshotProgress] = ()  # those that are not finished
    caught_up: bool = False  # everything that was committed before `start` has been given out, and all copies are finished
    lag_seconds: float | None = None  # for how long there has been something to read
    warning: str | None = None  # what somebody should look at, in one line
    next_at: int | None = None  # when it will look again, microseconds since 1970, where that is not at once


class Engine(Protocol):
    """Follows one database. Used by one thread."""

    @property
    def connector(self) -> str:
        """What `source.connector` says, as Debezium calls it."""
        ...

    @property
    def database(self) -> str:
        """What `source.db` says."""
        ...

    def start(self, position: Json | None, unfinished: Json | None) -> None:
        """Goes on behind this position; None: from the beginning, with a snapshot. If there is an intent that was not finished,
        the first batch is the one of that intent."""
        ...

    def next(self, wait: float) -> Batch | None:
        """The next batch; None if there is none within so many seconds. Disconnected if the database cannot be reached: `start`
        may be called again. SlotLost, NotFollowable and other errors end it."""
        ...

    def written(self, position: Json) -> None:
        """Everything up to this position is durable in the log: the database need not keep it."""
        ...

    def status(self) -> Status: ...

    def close(self) -> None: ...
