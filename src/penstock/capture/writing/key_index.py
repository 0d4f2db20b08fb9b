"""Where each key stands last in a partition: hashes of keys and offsets, 16 bytes a key, kept in sorted runs."""

import numpy as np
import pyarrow as pa

from penstock.capture.port import Places
from penstock.core.hashing import Hashes, hash64

ABSENT = -1


class KeyIndex:
    """Finds the last offset of a key. Two keys may have one hash: whoever looks compares the key of the record that is found."""

    def __init__(self) -> None:
        self._runs: list[tuple[Hashes, Places]] = []  # the newest last; in each run a hash stands once

    def __len__(self) -> int:
        return sum(len(hashes) for hashes, _ in self._runs)

    def add(self, keys: pa.Array, offsets: Places) -> None:
        """These keys stand at these offsets, which grow and lie behind all that were added before."""
        if not len(keys):
            return
        run = _last_of_each(hash64([keys], len(keys)), offsets)
        while self._runs and len(self._runs[-1][0]) <= 2 * len(run[0]):
            hashes, before = self._runs.pop()
            run = _last_of_each(np.concatenate([hashes, run[0]]), np.concatenate([before, run[1]]))
        self._runs.append(run)

    def find(self, keys: pa.Array) -> Places:
        """The last offset of each key; ABSENT where there is none."""
        wanted = hash64([keys], len(keys))
        found = np.full(len(keys), ABSENT, np.int64)
        for hashes, offsets in reversed(self._runs):
            places = np.minimum(np.searchsorted(hashes, wanted), len(hashes) - 1)
            here = (found == ABSENT) & (hashes[places] == wanted)
            found[here] = offsets[places[here]]
        return found


def _last_of_each(hashes: Hashes, offsets: Places) -> tuple[Hashes, Places]:
    order = np.argsort(hashes, kind="stable")  # offsets grow, so the last of equal ones is the last in the log
    hashes, offsets = hashes[order], offsets[order]
    last = np.r_[hashes[1:] != hashes[:-1], True]
    return hashes[last], offsets[last]
