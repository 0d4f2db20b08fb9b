"""Rows on which a step fails (G26): they are isolated, and become dead letters, nulls, or the error that stops the flow."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.arrow import Column, one_array, values_in
from penstock.core.change import Op
from penstock.core.columns import ADDRESS, OP, POSITION, TIME, WATERMARK
from penstock.core.position import position_text, record_of
from penstock.core.schema import TIMESTAMP
from penstock.core.time import NEVER
from penstock.engine.execute.program import dead_schema
from penstock.errors import FailedRow
from penstock.log.intake.codec import encode_json
from penstock.plan import Step

_ALONE = 8  # rows: where so few fail together, each is tried by itself
_SHOWN = 500  # characters of a row in an error
_LONGEST, _LONGEST_CAUSE = 1 << 17, 10_000  # characters of a row in a letter, and of its cause: its topic takes records of 1 MB
_RETRACTED = [int(Op.UPDATE_BEFORE), int(Op.DELETE)]


class Failure(NamedTuple):
    """A row on which an expression fails."""

    row: int  # its number in the table
    expression: str
    cause: str


class Sample(NamedTuple):
    """One of the rows on which a step failed, for the error that stops the flow."""

    expression: str
    cause: str
    row: str  # where it is, and what it holds


class Refused(Exception):
    """A table that a function could not take; its text is the cause."""


def cause_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def isolated(run: Callable[[pa.Table], pa.Table], rows: pa.Table) -> tuple[pa.Table | None, list[tuple[int, str]]]:
    """What `run` makes of rows that it takes (None: it takes none), and the numbers of those that it refuses alone, with the cause.

    `run` looks at each row alone, so a table that it refuses is cut until the rows are found for which it does."""
    taken: list[pa.Table] = []
    refused: list[tuple[int, str]] = []
    waiting = [(0, rows.num_rows)]
    while waiting:
        start, count = waiting.pop()
        try:
            taken.append(run(rows.slice(start, count)))
        except Refused as why:
            if count == 1:
                refused.append((start, str(why)))
                continue
            size = 1 if count <= _ALONE else (count + 1) // 2
            waiting += [(at, min(size, start + count - at)) for at in reversed(range(start, start + count, size))]
    return (pa.concat_tables(taken, promote_options="none") if taken else None), refused


def without(rows: pa.Table, failures: Sequence[Failure]) -> pa.Table:
    """The rows on which nothing failed."""
    kept = np.ones(rows.num_rows, np.bool_)
    kept[[f.row for f in failures]] = False
    return rows.filter(pa.array(kept))


def in_order(taken: pa.Table | None, nulls: pa.Table, failed: Sequence[int]) -> pa.Table:
    """Rows and those that stand for failed ones, as the rows stood that they were made from; failed: where nulls stood."""
    if taken is None:
        return nulls
    total, there = taken.num_rows + nulls.num_rows, np.ones(taken.num_rows + nulls.num_rows, np.bool_)
    there[list(failed)] = False
    at = np.empty(total, np.int64)
    at[there], at[~there] = np.arange(taken.num_rows), np.arange(taken.num_rows, total)
    return pa.concat_tables([taken, nulls], promote_options="none").take(at)


def new_ones(rows: pa.Table, failures: Sequence[Failure]) -> list[Failure]:
    """The failures of rows that are put in. What is taken out failed when it came, and was never passed on: it is no news."""
    new = put_in(rows.take(pa.array([f.row for f in failures], pa.int64()))).to_pylist()
    return [f for f, is_new in zip(failures, new, strict=True) if is_new]


def put_in(rows: pa.Table) -> pa.Array:
    """Which rows are put in, and not taken out."""
    if OP not in rows.column_names:
        return pa.repeat(True, rows.num_rows)
    return pc.invert(pc.is_in(rows.column(OP), pa.array(_RETRACTED, pa.int8())))


def dead_letters(step: str, failed: pa.Table, failures: Sequence[Failure]) -> pa.Table:
    """Rows of the flow's dead topic, one for each failure: step, cause, place, time, watermark, the row as JSON, expression."""
    n = len(failures)
    positions = values_in(failed.column(POSITION), bytes) if POSITION in failed.column_names else [b""] * n
    records = [record_of(p) for p in positions]
    times = failed.column(TIME).combine_chunks()
    marks: Column = failed.column(WATERMARK) if WATERMARK in failed.column_names else pa.array([NEVER] * n, pa.int64())
    marked = pc.if_else(pc.less_equal(marks, pa.scalar(NEVER)), pa.scalar(None, pa.int64()), marks).cast(TIMESTAMP)
    columns: list[Column | list[Any]] = [
        [step] * n,
        [shortened(f.cause, _LONGEST_CAUSE) for f in failures],
        *([getattr(r, a, None) for r in records] for a in ("topic", "partition", "offset")),
        times.cast(TIMESTAMP),
        marked,
        [shortened(text) for text in _as_json(failed)],
        [shortened(f.expression, _LONGEST_CAUSE) for f in failures],
    ]
    table = pa.table([_column(c, f.type) for c, f in zip(columns, dead_schema(), strict=True)], schema=dead_schema().arrow)
    table = table.append_column(TIME, times).append_column(WATERMARK, pa.array([NEVER] * n, pa.int64()))
    order = failed.column(ADDRESS) if ADDRESS in failed.column_names else pa.nulls(n, pa.int64())
    return table.append_column(POSITION, pa.array(positions, pa.binary())).append_column(ADDRESS, order)


def shortened(text: str, most: int = _LONGEST) -> str:
    """The beginning of a text; a letter that is too long for its topic would stop the flow after all."""
    return text if len(text) <= most else f"{text[:most]}…"


def sample(row: pa.Table, failure: Failure) -> Sample:
    """A failed row, which is a table of one, for people."""
    where = f"{position_text(row.column(POSITION)[0].as_py())}: " if POSITION in row.column_names else ""
    return Sample(failure.expression, shortened(failure.cause, _SHOWN), where + shortened(_as_json(row)[0], _SHOWN))


def stopped(flow: str, step: Step, failed: Sample, why: str | None = None, hint: str | None = None) -> FailedRow:
    """The error that a failed row stops a flow with; why: what goes before the row itself."""
    return FailedRow(
        why or f'step "{step.name}" fails on a row: {failed.expression}: {failed.cause}',
        f'flow {flow}, step "{step.name}" ({step.origin})',
        *([f"for one, {failed.expression}: {failed.cause}"] if why else []),
        f"row {failed.row}",
        hint=hint or 'change the expression, or set such rows aside with on_error="dead"; running again alone does not help',
    )


def _as_json(rows: pa.Table) -> list[str]:
    user = rows.select([c for c in rows.column_names if not c.startswith("__")])
    return [text.decode() for text in encode_json(user)] if user.num_columns else ["{}"] * rows.num_rows


def _column(values: Column | list[Any], t: pa.DataType) -> pa.Array:
    return pa.array(values, t) if isinstance(values, list) else one_array(values)
