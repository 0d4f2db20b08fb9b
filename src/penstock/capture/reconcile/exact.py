"""Single keys of a topic, by their text: what the log says of each, and where a row differs from that of the source."""

from collections.abc import Sequence

import numpy as np
import orjson

from penstock.capture.reconcile.folding import View
from penstock.capture.reconcile.hashing import Canonical, Hashes
from penstock.capture.reconcile.results import ColumnDifference

LONGEST = 200  # characters of a value that are shown

LogRows = dict[bytes, bytes | None]  # by key; None: it is gone


def log_rows(view: View, wanted: Hashes) -> LogRows:
    """The last row that the view has of each key with one of these hashes; keys that it does not have are left out."""
    found: LogRows = {}
    if not len(wanted):
        return found
    wanted = np.unique(wanted)
    for records, seen in view.read():
        hashes = records.key_hashes()
        at = np.minimum(np.searchsorted(wanted, hashes), len(wanted) - 1)
        which = np.flatnonzero(seen & (wanted[at] == hashes))
        if len(which):
            found.update(zip(records.keys.gather(which).to_list(), records.rows.gather(which).to_list(), strict=True))
    return found


def same_row(canonical: Canonical, source: bytes, log: bytes | None) -> bool:
    """Whether both mean the same, whatever their texts are."""
    return log is not None and (source == log or canonical.row(source) == canonical.row(log))


def column_differences(columns: Sequence[str], source: bytes, log: bytes) -> list[ColumnDifference]:
    """The columns whose values differ."""
    here, there = orjson.loads(source), orjson.loads(log)
    return [
        ColumnDifference(name, _shown(here, name), _shown(there, name)) for name in columns if here.get(name) != there.get(name)
    ]


def _shown(row: dict[str, object], name: str) -> str | None:
    if name not in row:
        return None
    text = orjson.dumps(row[name]).decode()
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text)} characters)"
