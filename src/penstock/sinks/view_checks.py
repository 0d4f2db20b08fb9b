"""Checksums of a view's rows: what was written is what is read, or it is an error (G27).

Every version carries a checksum of its values and of the epoch it came with. A version in history also carries when it ended, once
more. Each line of `marker` carries its own, and for both tables how many versions there are and the sum of their checksums, so that
one that is missing is noticed, too.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
from crc32c import crc32c

from penstock.sinks.row_checksums import checksums
from penstock.sinks.view_tables import ENDS, Layout

Checks = npt.NDArray[np.int64]


class Sum(NamedTuple):
    """What a table holds, in four numbers."""

    rows: int = 0
    total: int = 0  # of the checksums
    bare: int = 0  # rows without one: an older Penstock wrote them
    numbers: int = 0  # of the rows in history, added up

    def plus(self, other: "Sum") -> "Sum":
        return Sum(*(a + b for a, b in zip(self, other, strict=True)))

    def minus(self, other: "Sum") -> "Sum":
        return Sum(*(a - b for a, b in zip(self, other, strict=True)))


class Sums(NamedTuple):
    """What a view holds."""

    current: Sum = Sum()
    history: Sum = Sum()

    @classmethod
    def parsed(cls, text: str) -> "Sums":
        return cls(*(Sum(*part) for part in json.loads(text)))

    def text(self) -> str:
        return json.dumps(self)


def row_checks(layout: Layout, columns: Mapping[str, pa.Array], since: pa.Array) -> Checks:
    """The checksum of each row; columns as SQLite holds them, since: the epoch of each row."""
    return checksums([since, *(columns[name] for name in layout.checked)], len(since))


def with_ends(checks: Checks, until: pa.Array, deleted: pa.Array) -> Checks:
    """The checksums of versions in history, with what stands above a row's own there; view_tables has the same in SQL."""
    epochs, gone = (column.fill_null(0).to_numpy() for column in (until, deleted))
    ended = (epochs % ENDS * 2 + gone) % ENDS
    return checks + (np.where(until.is_null().to_numpy(zero_copy_only=False), 0, ended) << 32)


def line_check(values: Sequence[Any]) -> int:
    """The checksum of a line of `marker`, of all lines of `meta`, or of the database's own tables."""
    return int(crc32c(orjson.dumps(values, _hex)))


def _hex(value: bytes) -> str:
    return "\0" + value.hex()
