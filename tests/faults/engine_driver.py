"""Runs the flows of engine_shop to their end in a process that stops itself, as by SIGSTOP, when it passes a point.

python engine_driver.py HOME POINT@N: the first flow's N-th time there. It ends with code 3 and the error on
standard output if it is refused."""

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from faults.engine_shop import drain
from penstock.engine.run import runtime
from penstock.engine.run.context import Fail
from penstock.errors import PenstockError
from penstock.sinks.port import nothing


def stopping(setting: str, flow: str) -> Fail:
    point, _, count = setting.partition("@")
    left = int(count)

    def fail(reached: str) -> None:
        nonlocal left
        if reached == point:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGSTOP)

    return fail if flow == "shop" else nothing


if __name__ == "__main__":
    runtime.armed = stopping
    os.environ["PENSTOCK_FAIL"] = sys.argv[2]
    try:
        drain(Path(sys.argv[1]))
    except PenstockError as error:
        print(f"{type(error).__name__}: {error}")
        sys.exit(3)
