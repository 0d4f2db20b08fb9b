"""Runs the flows of engine_shop in processes that are killed. Started as a program; it forks before it uses any thread.

Every line of its standard input is a home, a list of settings of PENSTOCK_FAIL and what PENSTOCK_LOG is to be, as JSON. For each
setting a process, a group of its own, runs the flows to their end or to its kill; then one runs them without any. It answers with
a line of how each ended.
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from faults.engine_shop import drain

os.fsync = os.fdatasync = lambda fd: None  # a kill takes nothing from the kernel; power loss is another test's matter


def ended(home: Path, fail: str, log: str) -> int:
    """The exit code of one run, or minus the signal that killed it."""
    child = os.fork()
    if not child:
        os.setsid()
        os.environ["PENSTOCK_FAIL"] = fail
        os.environ["PENSTOCK_LOG"] = log
        drain(home)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    for line in sys.stdin:
        home, fails, log = json.loads(line)
        print(json.dumps([ended(Path(home), fail, log) for fail in [*fails, ""]]), flush=True)
