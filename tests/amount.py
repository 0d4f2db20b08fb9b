"""How many random cases a test tries: few in the normal run, more in `make faults`, which sets PENSTOCK_CASES."""

import os

_TIMES = int(os.environ.get("PENSTOCK_CASES", "1"))


def cases(few: int) -> int:
    return few * _TIMES
