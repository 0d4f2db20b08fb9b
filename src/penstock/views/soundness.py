"""Whether what a view's file holds is what was written: the rows of an answer, or all of it (G27)."""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import orjson

from penstock.sinks import view_file
from penstock.sinks.sqlite_values import Value
from penstock.sinks.view_checks import Sum, Sums, ends, line_check, row_checks
from penstock.sinks.view_tables import CRC, DELETED, LOW, NUMBER, SINCE, UNTIL, Layout, summed
from penstock.views.questions import answered, select_table

Columns = Mapping[str, tuple[Value, ...]]
_AT_ONCE = 10_000


class Soundness(NamedTuple):
    """What was looked at, all of it sound."""

    verified: int  # versions
    bare: int  # versions without a checksum


def columns_of(layout: Layout, rows: Sequence[tuple[Value, ...]]) -> Columns:
    names = answered(layout)
    return dict(zip(names, zip(*rows, strict=True) if rows else [()] * len(names), strict=True))


def verify(layout: Layout, columns: Columns, bare: bool) -> None:
    """sqlite3.DatabaseError where a version is not what was written. bare: whether there may be versions without a checksum."""
    try:
        own = row_checks(layout, columns, columns[SINCE])
        if tuple(own) == columns[CRC] and not any(columns[DELETED]) and columns[UNTIL].count(None) == len(own):
            return
        right = [low + (high << 32) for low, high in zip(own, ends(columns[UNTIL], columns[DELETED]), strict=True)]
    except (TypeError, ValueError, OverflowError, orjson.JSONEncodeError) as error:
        raise sqlite3.DatabaseError(f"values of another kind than were written: {error}") from error
    for i, (found, wanted) in enumerate(zip(columns[CRC], right, strict=True)):
        if found != wanted and not (bare and found is None):
            key = ", ".join(f"{name} {columns[name][i]!r:.60}" for name in layout.clustered)
            raise sqlite3.DatabaseError(f"the checksum of its row {key} does not match")


def compare(found: Sum, told: Sum, table: str) -> None:
    if found != told:
        raise sqlite3.DatabaseError(
            f"{table} has {found.rows} versions with checksums that add up to {found.total}, not {told.rows} with {told.total}"
        )


def sum_of(columns: Columns) -> Sum:
    """Of all rows of `current`."""
    checks = columns[CRC]
    bare = checks.count(None)
    return Sum(len(checks), sum(check & LOW for check in checks if check is not None) if bare else sum(checks), bare)


def verify_all(connection: sqlite3.Connection, layout: Layout, sums: Sums) -> Soundness:
    """Reads everything; sqlite3.DatabaseError at the first thing that is not what was written."""
    _structure(connection)
    _markers(connection)
    bare = 0
    for table, number, told in (("current", "0", sums.current), ("history", NUMBER, sums.history)):
        compare(Sum(*connection.execute(summed(table, number)).fetchone()), told, table)
        reading = connection.execute(select_table(layout, table))
        while rows := reading.fetchmany(_AT_ONCE):
            verify(layout, columns_of(layout, rows), told.bare > 0)
        bare += told.bare
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
