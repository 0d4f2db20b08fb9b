"""Questions about the versions of a view's rows, as SQL over its `current` and `history` tables.

A version is known from epoch `__since` on. Known at epoch E: what `current` held when E was done. As of event time T: per key the
version with the greatest time up to T, among those known. An answer has the columns of whole versions (`answered`), so that
their checksums can be verified.
"""

from dataclasses import dataclass

from penstock.core.columns import CRC, DELETED, NUMBER, SINCE, TIME, UNTIL
from penstock.sinks.view_tables import Layout, listed, quoted

_LAST = 2**63 - 1  # the number of a current version: after all that went to history


@dataclass(frozen=True)
class Question:
    """Which versions are wanted; None: the current ones."""

    as_of: int | None = None  # event time, microseconds
    known_at: int | None = None  # epoch

    @property
    def about_the_past(self) -> bool:
        return self != Question()


def answered(layout: Layout, past: bool = True) -> list[str]:
    """The columns of an answer. past: whether it has versions of `history`, which have an end; else, and where there is nothing to
    verify, only what is asked for is read."""
    if past:
        return [*layout.names, SINCE, UNTIL, DELETED, *([CRC] if layout.checks else [])]
    return [*layout.names, SINCE, CRC] if layout.checks else layout.schema.names


def _current(layout: Layout) -> str:
    return f"{listed(layout.names)}, {SINCE}, NULL AS {UNTIL}, 0 AS {DELETED}" + _crc(layout)


def _past(layout: Layout) -> str:
    return f"{listed(layout.names)}, {SINCE}, {UNTIL}, {DELETED}" + _crc(layout)


def _crc(layout: Layout) -> str:
    return f", {CRC}" if layout.checks else ""


def select_rows(layout: Layout, question: Question, where: tuple[str, ...] = (), limit: bool = False) -> str:
    """One row per key. Parameters: :as_of, :epoch, :limit, and :w0 … for the columns in where."""
    conditions = " AND ".join(f"{quoted(name)} IS :w{i}" for i, name in enumerate(where)) or "1"
    order = layout.clustered if layout.key else layout.order
    return (
        f"SELECT {listed(answered(layout, question.about_the_past))} FROM ({_chosen(layout, question)}) WHERE {conditions} "
        f"ORDER BY {listed(order)}{' LIMIT :limit' if limit else ''}"
    )


def _chosen(layout: Layout, question: Question) -> str:
    if question.as_of is not None:
        return _as_of(layout, question.known_at is not None)
    if question.known_at is None:
        return f"SELECT {_current(layout)} FROM current"
    return (
        f"SELECT {_current(layout)} FROM current WHERE {SINCE} <= :epoch "
        f"UNION ALL SELECT {_past(layout)} FROM history WHERE {SINCE} <= :epoch AND {UNTIL} > :epoch"
    )


def _as_of(layout: Layout, known: bool) -> str:
    names, then = listed(answered(layout)), f"{TIME} <= :as_of" + (f" AND {SINCE} <= :epoch" if known else "")
    # Versions of an updating stream follow each other by epoch; rows of an append-only one by position, wherever epochs were cut.
    newest = ", ".join(f"{quoted(n)} DESC" for n in ((TIME,) if layout.updating else layout.order))
    ranked = f"row_number() OVER (PARTITION BY {listed(layout.clustered)} ORDER BY {newest}, {SINCE} DESC, {NUMBER} DESC)"
    every = f"SELECT *, {ranked} AS __rank FROM ({versions(layout, then)})"
    return f"SELECT {names} FROM ({every}) WHERE __rank = 1 AND NOT {DELETED}"


def versions(layout: Layout, condition: str) -> str:
    """Every version that meets the condition, with its epochs: `__until` is null for the current one."""
    return (
        f"SELECT {_current(layout)}, {_LAST} AS {NUMBER} FROM current WHERE {condition} "
        f"UNION ALL SELECT {_past(layout)}, {NUMBER} FROM history WHERE {condition}"
    )


def select_one(layout: Layout) -> str:
    """The current version of one key; parameters :w0 … in the order of the clustered key."""
    return f"SELECT {listed(answered(layout, past=False))} FROM current WHERE {_key(layout)}"


def select_history(layout: Layout) -> str:
    """All versions of one key, oldest knowledge first; parameters :w0 … in the order of the clustered key."""
    return f"SELECT {listed(answered(layout))} FROM ({versions(layout, _key(layout))}) ORDER BY {SINCE}, {NUMBER}"


def _key(layout: Layout) -> str:
    return " AND ".join(f"{quoted(name)} = :w{i}" for i, name in enumerate(layout.clustered))


def select_new(layout: Layout) -> str:
    """Rows that became current after epoch :epoch."""
    names = listed(answered(layout, past=False))
    return f"SELECT {names} FROM current WHERE {SINCE} > :epoch ORDER BY {SINCE}, {listed(layout.clustered)}"


def select_gone(layout: Layout) -> str:
    """Rows deleted after epoch :epoch, and not there again."""
    key = layout.same_key("c", "h")
    return (
        f"SELECT {_past(layout)} FROM history h WHERE {SINCE} > :epoch AND {DELETED} "
        f"AND NOT EXISTS (SELECT 1 FROM current c WHERE {key}) ORDER BY {SINCE}, {NUMBER}"
    )


def select_table(layout: Layout, table: str) -> str:
    """Every version in `current`, or in `history`."""
    return f"SELECT {listed(answered(layout, table == 'history'))} FROM {table}"
