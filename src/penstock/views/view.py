"""A view, as those who look at it see it: rows now, rows as they were, one row, its history, and waiting for what was just sent."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.core.columns import CRC, DELETED, SINCE, TIME, UNTIL
from penstock.core.position import Position
from penstock.core.python_rows import python_rows
from penstock.core.schema import TIMESTAMP
from penstock.core.time import NEVER, duration, instant, micros, text
from penstock.errors import BadInput, DamagedView, NotFound, NotYet
from penstock.log.intake.conversion import Misfit, converter, misfit_text
from penstock.sinks import view_file
from penstock.sinks.sqlite_values import Value, from_stored, to_sqlite
from penstock.sinks.view_checks import Sum, Sums
from penstock.sinks.view_tables import Layout
from penstock.views.directory import view_path
from penstock.views.questions import Question, answered, select_gone, select_history, select_new, select_one, select_rows
from penstock.views.soundness import AT_ONCE, Columns, Soundness, columns_of, compare, verify, verify_all

Time = str | datetime | int  # an int is microseconds since 1970
_POLL = 0.02
_SMALL = 2_000  # versions that are verified as a whole, where an answer may lack one


@dataclass(frozen=True)
class Progress:
    """How far a view has come."""

    epoch: int  # -1: nothing was delivered yet
    frontier: int  # event time up to which it is complete, microseconds; NEVER, FOREVER
    clock: int  # when the epoch was opened
    inputs: Mapping[str, Mapping[int, int]]  # topic -> partition -> next offset
    incarnation: str = ""  # the life of the flow that it belongs to: a reset begins another one

    def holds(self, position: Position) -> bool:
        """Whether what the record led to can be seen."""
        return self.inputs.get(position.topic, {}).get(position.partition, 0) > position.offset


class Changes(NamedTuple):
    """What is different in a view since an earlier epoch."""

    epoch: int
    rows: pa.Table  # new, or with new values
    deleted: pa.Table


class View:
    """A view opened for reading. It may be read while its flow writes it; every answer is of one epoch.

    Use it in a `with`, or close it."""

    def __init__(self, home_views: str | Path, name: str) -> None:
        """home_views: the directory `views` of a home; name: what the flow called it."""
        if not isinstance(home_views, str | Path):
            raise BadInput(f"cannot open a view in {home_views!r}", hint='give the directory: View(".penstock/views", "sales")')
        self.name = name
        self._path = view_path(Path(home_views), name)
        self._connection = view_file.connect(self._path, name, read_only=True)
        self._checks = view_file.has_checks(self._connection)
        self._sound: int | None = None  # the state of the file that was found sound

    def __enter__(self) -> "View":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    @property
    def meta(self) -> view_file.Meta:
        """Flow, schema and key, as they are now."""
        with view_file.refused(self._path, self.name):
            return view_file.read_meta(self._connection)

    @property
    def progress(self) -> Progress:
        with self.snapshot(), view_file.refused(self._path, self.name):
            (epoch, incarnation, _, inputs, clock, frontier), _ = view_file.last_marker(self._connection, self._checks)
        try:
            ends = {topic: {int(p): offset for p, offset in of.items()} for topic, of in json.loads(inputs).items()}
        except (AttributeError, TypeError, ValueError) as error:
            raise self._damaged(f"its line about epoch {epoch} cannot be read: {error}") from error
        return Progress(epoch, frontier, clock, ends, incarnation)

    @property
    def epoch(self) -> int:
        return self.progress.epoch

    @property
    def frontier(self) -> int:
        return self.progress.frontier

    @property
    def position(self) -> Mapping[str, Mapping[int, int]]:
        """topic -> partition -> the next offset: what lies before it is in the view."""
        return self.progress.inputs

    def count(self) -> int:
        with self.snapshot():
            found, sums = int(self._ask("SELECT count(*) FROM current")[0][0]), self._sums()
            if sums and sums.current.rows != found:
                raise self._damaged(f"it has {found} rows, not {sums.current.rows}")
            return found

    def rows(
        self,
        as_of: Time | None = None,
        known_at: Time | None = None,
        where: Mapping[str, Any] | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        """The rows, one per key, in the order of the key.

        as_of: an event time; per key the last version up to it. known_at: an epoch number, or a time: the last epoch opened up
        to it. where: columns that must have these values."""
        with self.snapshot():
            question = Question(None if as_of is None else _micros(as_of), None if known_at is None else self._epoch_at(known_at))
            given = where or {}
            parameters = {f"w{i}": self._bound(name, value) for i, (name, value) in enumerate(given.items())}
            parameters |= {"as_of": question.as_of, "epoch": question.known_at, "limit": limit}
            statement = select_rows(self._layout, question, tuple(given), limit is not None)
            found, held = self._answer(statement, parameters, past=question.about_the_past)
            if given or limit is not None or question.about_the_past:
                self._nothing_hidden()
            elif sums := self._sums():
                with view_file.refused(self._path, self.name):
                    compare(held, sums.current, "current")
            return found

    def get(self, *key: Any) -> dict[str, Any] | None:
        """The row with these key values, in the order of the view's key; None if there is none. Where rows are named by their
        position, the key is a Position."""
        with self.snapshot():
            found, _ = self._answer(select_one(self._layout), self._key(key))
            rows = python_rows(found, f"view {self.name}")
            if not rows:
                self._nothing_hidden()
            return rows[0] if rows else None

    def history(self, *key: Any) -> pa.Table:
        """Every version of one key, oldest first, with __t (event time), __since and __until (epochs; null: still current) and
        __deleted."""
        facts = {TIME: TIMESTAMP, SINCE: pa.int64(), UNTIL: pa.int64(), DELETED: pa.bool_()}
        more = [pa.field(name, t) for name, t in facts.items()]
        with self.snapshot():
            found, _ = self._answer(select_history(self._layout), self._key(key), past=True, more=more)
            self._nothing_hidden()
        return found

    def changes(self, since: int) -> Changes:
        """What became different after epoch `since`; versions in between are left out."""
        with self.snapshot():
            layout, epoch = self._layout, self.epoch
            new, _ = self._answer(select_new(layout), {"epoch": since})
            gone, _ = self._answer(select_gone(layout), {"epoch": since}, past=True)
            self._nothing_hidden()
            return Changes(epoch, new, gone)

    def follow(self, poll: float = 0.2, since: int = -1, stop: Callable[[], bool] = lambda: False) -> Iterator[Changes]:
        """What is there after epoch `since`, then what changes, epoch by epoch or several at once, until stop() says so."""
        while not stop():
            if self.epoch > since:
                found = self.changes(since)
                since = found.epoch
                if found.rows.num_rows or found.deleted.num_rows:
                    yield found
            else:
                time.sleep(poll)

    def wait_for(self, position: Position, timeout: str | timedelta = "10 seconds") -> Progress:
        """Returns once the view holds what this record led to; NotYet when the time is over."""
        deadline = time.monotonic() + duration(timeout, "timeout").total_seconds()
        while not (now := self.progress).holds(position):
            if time.monotonic() >= deadline:
                read = now.inputs.get(position.topic, {}).get(position.partition, 0)
                raise NotYet(
                    f"view {self.name!r} does not hold {position} after {timeout}",
                    f"epoch {now.epoch}; {position.topic}/{position.partition} was read up to offset {read}",
                    hint=f"is flow {self.meta.flow!r} running?",
                )
            time.sleep(_POLL)
        return now

    def check(self) -> Soundness:
        """Reads everything and verifies it; DamagedView where something is not what was written. A view that an older Penstock
        wrote, and that its flow has not written to since, carries no checksums."""
        with self.snapshot(), view_file.refused(self._path, self.name):
            sums = self._sums()
            if sums is None:
                return Soundness(0, sum(self._ask(f"SELECT count(*) FROM {table}")[0][0] for table in ("current", "history")))
            return verify_all(self._connection, self._layout, sums)

    def why_empty(self) -> str | None:
        """One sentence that says why there are no rows; None if there are some."""
        if self._ask("SELECT 1 FROM current LIMIT 1"):
            return None
        now, flow = self.progress, self.meta.flow
        if now.epoch < 0:
            return f"flow {flow!r} has not finished an epoch yet"
        if not any(offset for ends in now.inputs.values() for offset in ends.values()):
            return f"flow {flow!r} has found no rows in {', '.join(sorted(now.inputs)) or 'its topics'} (epoch {now.epoch})"
        if now.frontier <= NEVER:
            return f"flow {flow!r} has not seen an event time in all of its inputs (epoch {now.epoch})"
        return f"nothing is complete up to the watermark {text(now.frontier)} (epoch {now.epoch}): --open shows what is still open"

    def _epoch_at(self, known_at: Time) -> int:
        """The epoch that is meant; an int is an epoch number."""
        first, last = self._ask("SELECT min(epoch), max(epoch) FROM marker")[0]
        if isinstance(known_at, int):
            if known_at > last:
                raise NotFound(f"view {self.name!r} has not reached epoch {known_at}", f"its last epoch is {last}")
            return known_at
        asked = _micros(known_at)
        found = self._ask("SELECT max(epoch) FROM marker WHERE clock <= ?", (asked,))[0][0]
        if found is None:
            raise NotFound(
                f"view {self.name!r} does not remember which epoch it was at {text(asked)}",
                f"times are kept from epoch {first} on",
                hint="give the number of an epoch",
            )
        return int(found)

    def _key(self, key: Sequence[Any]) -> dict[str, Value]:
        """The values of a key in the order of the disk."""
        meta = self.meta
        if not meta.key:
            if len(key) != 1 or not isinstance(key[0], Position | bytes):
                raise BadInput(f"the rows of view {self.name!r} are named by their position", hint="as in orders/0@17")
            return {"w0": key[0].encode() if isinstance(key[0], Position) else key[0]}
        if len(key) != len(meta.key):
            raise BadInput(
                f"the key of view {self.name!r} has {len(meta.key)} parts, not {len(key)}", hint=f"it is {', '.join(meta.key)}"
            )
        values = dict(zip(meta.key, key, strict=True))
        return {f"w{i}": self._bound(name, values[name]) for i, name in enumerate(meta.layout.clustered)}

    def _bound(self, name: str, value: Any) -> Value:
        meta = self.meta
        if name not in meta.schema:
            raise BadInput(f"view {self.name!r} has no column {name!r}", hint=f"it has {', '.join(meta.schema.names)}")
        t = meta.schema.type(name)
        try:
            return to_sqlite(pa.array([converter(t)(value)], t), name in meta.key)[0]
        except Misfit as error:
            raise BadInput(misfit_text(name, t, value, str(error))) from error

    @property
    def _layout(self) -> Layout:
        return replace(self.meta.layout, checks=self._checks)

    def _sums(self) -> Sums | None:
        """What the view holds, as it says itself; None where an older Penstock wrote it."""
        with view_file.refused(self._path, self.name):
            return view_file.last_marker(self._connection, self._checks)[1]

    def _answer(
        self, statement: str, parameters: Mapping[str, Value], past: bool = False, more: Sequence[pa.Field] = ()
    ) -> tuple[pa.Table, Sum]:
        """The rows, and what their checksums add up to; DamagedView where one is not what was written. past: whether there may be
        rows of history; more: columns that are wanted beside the schema's."""
        layout = self._layout
        names, fields = answered(layout, past), [*layout.schema, *more]
        tables, held = list[pa.Table](), Sum()
        with view_file.refused(self._path, self.name):
            reading = self._connection.execute(statement, parameters)
            while rows := reading.fetchmany(AT_ONCE):
                columns = columns_of(layout, names, rows)
                if self._checks:
                    held = held.plus(verify(layout, columns, bool(columns[CRC].null_count) and self._has_bare()))
                tables.append(self._table(columns, fields))
        if len(tables) == 1:
            return tables[0], held
        return pa.concat_tables(tables or [pa.schema(fields).empty_table()]).combine_chunks(), held

    def _has_bare(self) -> bool:
        sums = self._sums()
        return bool(sums and (sums.current.bare or sums.history.bare))

    def _nothing_hidden(self) -> None:
        """An answer is also wrong by what is not in it: damage may have moved a row out of its sight. Small views are read whole
        for that, once after each change; in large ones `penstock doctor --deep` finds it."""
        sums = self._sums()
        if sums is None or sums.current.rows + sums.history.rows > _SMALL:
            return
        now = self._ask("PRAGMA data_version")[0][0]
        if self._sound != now:
            with view_file.refused(self._path, self.name):
                verify_all(self._connection, self._layout, sums)
            self._sound = now

    def _table(self, columns: Columns, fields: Sequence[pa.Field]) -> pa.Table:
        try:
            return pa.table([from_stored(columns[f.name], f.type) for f in fields], schema=pa.schema(fields))
        except (ArithmeticError, TypeError, ValueError, pa.ArrowException) as error:
            raise self._damaged(f"values of another kind than were written: {error}") from error

    def _damaged(self, what: str) -> DamagedView:
        return view_file.damaged(self._path, self.name, what)

    def _ask(self, statement: str, parameters: Mapping[str, Value] | Sequence[Value] = ()) -> list[tuple[Value, ...]]:
        with view_file.refused(self._path, self.name):
            return self._connection.execute(statement, parameters).fetchall()

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """All questions inside are answered from one and the same epoch."""
        if self._connection.in_transaction:
            yield
            return
        self._ask("BEGIN")
        try:
            yield
        finally:
            self._ask("COMMIT")


def _micros(value: Time) -> int:
    return value if isinstance(value, int) else micros(instant(value))
