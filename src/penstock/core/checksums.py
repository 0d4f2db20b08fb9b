"""Checksums of rows that do not depend on their order."""

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def mixed(keys: Hashes, rows: Hashes) -> Hashes:
    """A number for each row, from the hashes of its key and of itself: the sum of them is a checksum. One row more, less or other
    gives another one."""
    with np.errstate(over="ignore"):
        out = (keys ^ (keys >> np.uint64(29))) * _MULTIPLIER + rows
        out = (out ^ (out >> np.uint64(32))) * _MULTIPLIER
        return out ^ (out >> np.uint64(29))
