"""Whether what a view's file holds is what was written: the rows of an answer, or all of it (G27)."""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from penstock.core.columns import CRC, DELETED, NUMBER, SINCE, UNTIL
from penstock.sinks import view_file
from penstock.sinks.sqlite_values import Value, as_stored
from penstock.sinks.view_checks import Sum, Sums, line_check, row_checks, with_ends
from penstock.sinks.view_tables import LOW, Layout, summed
from penstock.views.questions import answered, select_table

Columns = Mapping[str, pa.Array]  # as SQLite holds them
AT_ONCE = 2_000  # rows: so many stay in the processor's cache while they become columns
_NONE = -1  # no checksum: they are positive


class Soundness(NamedTuple):
    """What was looked at, all of it sound."""

    verified: int  # versions
    bare: int  # versions without a checksum


def columns_of(layout: Layout, names: Sequence[str], rows: Sequence[tuple[Value, ...]]) -> Columns:
    """An answer, column by column; sqlite3.DatabaseError where values are of another kind than was written."""
    types = {f.name: f.type for f in layout.fields}
    try:
        parts = zip(names, zip(*rows, strict=True), strict=True)
        return {name: as_stored(values, types.get(name, pa.int64()), name in layout.key) for name, values in parts}
    except (ArithmeticError, TypeError, ValueError, pa.ArrowException) as error:
        raise sqlite3.DatabaseError(f"values of another kind than were written: {error}") from error


def verify(layout: Layout, columns: Columns, bare: bool) -> Sum:
    """What the versions add up to; sqlite3.DatabaseError where one is not what was written. bare: whether there may be versions
    without a checksum."""
    right, found = row_checks(layout, columns, columns[SINCE]), columns[CRC].fill_null(_NONE).to_numpy()
    if UNTIL in columns:
        right = with_ends(right, columns[UNTIL], columns[DELETED])
    wrong = found != right
    if bare:
        wrong &= found != _NONE
    if wrong.any():
        first = int(wrong.argmax())
        key = ", ".join(f"{name} {columns[name][first].as_py()!r:.60}" for name in layout.clustered)
        raise sqlite3.DatabaseError(f"the checksum of its row {key} does not match")
    return Sum(len(found), int((found & LOW)[found != _NONE].sum()), columns[CRC].null_count)


def compare(found: Sum, stored: Sum, table: str) -> None:
    if found != stored:
        raise sqlite3.DatabaseError(
            f"{table} has {found.rows} versions with checksums that add up to {found.total}, not {stored.rows} with {stored.total}"
        )


def verify_all(connection: sqlite3.Connection, layout: Layout, sums: Sums) -> Soundness:
    """Reads everything; sqlite3.DatabaseError at the first thing that is not what was written."""
    _structure(connection)
    _markers(connection)
    bare = 0
    for table, number, stored in (("current", "0", sums.current), ("history", NUMBER, sums.history)):
        compare(Sum(*connection.execute(summed(table, number)).fetchone()), stored, table)
        reading = connection.execute(select_table(layout, table))
        names = answered(layout, table == "history")
        while rows := reading.fetchmany(AT_ONCE):
            verify(layout, columns_of(layout, names, rows), stored.bare > 0)
        bare += stored.bare
    return Soundness(sums.current.rows + sums.history.rows - bare, bare)


def _structure(connection: sqlite3.Connection) -> None:
    """SQLite's own look at its pages and indexes."""
    found = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if found != ("ok",):
        raise sqlite3.DatabaseError(str(found[0]).strip().splitlines()[-1])


def _markers(connection: sqlite3.Connection) -> None:
    for line in connection.execute(f"SELECT {view_file.MARKER}, sums, {CRC} FROM marker"):
        if line_check(line[:-1]) != line[-1]:
            raise sqlite3.DatabaseError(f"the checksum of its line about epoch {line[0]} does not match")
