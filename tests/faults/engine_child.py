"""Runs the flows of engine_shop in processes that are killed. Started as a program; it forks before it uses any thread.

python engine_child.py PLACE CASES.json: every case is a home in PLACE and a list of settings of PENSTOCK_FAIL. For each setting a
process, a group of its own, runs the flows to their end or to its kill; then one runs them without any. Prints how each ended.
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from faults.engine_shop import drain

os.fsync = os.fdatasync = lambda fd: None  # a kill takes nothing from the kernel; power loss is another test's matter


def ended(home: Path, fail: str) -> int:
    """The exit code of one run, or minus the signal that killed it."""
    child = os.fork()
    if not child:
        os.setsid()
        os.environ["PENSTOCK_FAIL"] = fail
        drain(home)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(place: Path, cases: dict[str, list[str]]) -> dict[str, list[int]]:
    return {home: [ended(place / home, fail) for fail in [*fails, ""]] for home, fails in cases.items()}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text()))))
