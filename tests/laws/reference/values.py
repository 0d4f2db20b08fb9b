"""Rows as the specification has them, and the one order in which ties are broken."""

from typing import Any, NamedTuple

NEVER, FOREVER = -(2**62), 2**62


class Row(NamedTuple):
    t: int  # event time
    key: str | None
    val: Any
    pos: tuple[Any, ...]  # (topic, partition, offset); of a derived row: what it was made from
    W: int = NEVER  # watermark at the row; NEVER once judged or derived: never late
    app: int = 0  # append time


def rank(x: Any) -> tuple[int, Any]:
    """A total order over positions of any shape."""
    if isinstance(x, tuple):
        return (2, tuple(map(rank, x)))
    return (-1, 0) if x is None else (1, x) if isinstance(x, str) else (0, x)


def order(row: Row) -> tuple[int, Any]:
    return (row.t, rank(row.pos))


def settle(row: Row) -> Row:
    """A judged row goes on as a derived one."""
    return row._replace(W=NEVER)
