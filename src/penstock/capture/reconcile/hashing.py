"""Hashes of keys and rows, the same for what stands in a topic and what is read from the source; checksums that do not depend on
the order of rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
import polars as pl

from penstock.core.checksums import Hashes as Hashes
from penstock.core.checksums import mixed

_SEED = 17


def hashes_of(texts: pl.Series) -> Hashes:
    """64 bits of each text, given as bytes. They mean something within one process alone."""
    return texts.hash(_SEED).to_numpy()


def checksum_of(keys: Hashes, rows: Hashes) -> int:
    """Of rows with these hashes, in whatever order; one row more, less or other gives another one."""
    return int(np.add.reduce(mixed(keys, rows), dtype=np.uint64))


class Canonical:
    """Rows as they are compared where their texts may differ although they mean the same: with the columns that the source has
    now. What a column did not say, as it was not there yet, is null."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = tuple(columns)

    def row(self, text: bytes) -> dict[str, Any]:
        told = orjson.loads(text)
        return {name: told.get(name) for name in self._columns}

    def rows(self, texts: pl.Series) -> pl.Series:
        """Null where there is no row."""
        return pl.Series([text if text is None else orjson.dumps(self.row(text)) for text in texts], dtype=pl.Binary)
