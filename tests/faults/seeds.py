"""Where chance begins in tests of faults: PENSTOCK_SEED, which a test prints, so that what failed can be repeated."""

import os
from collections.abc import Callable

SEED = int(os.environ.get("PENSTOCK_SEED", "1"))


def disks(least: int, losses: Callable[[int], int]) -> int:
    """Loses the power under one seed after another until so many disks, or more, were looked at; how many."""
    looked, seed = 0, SEED
    while looked < least:
        print(f"PENSTOCK_SEED={seed}")
        looked += losses(seed)
        seed += 1
    return looked
