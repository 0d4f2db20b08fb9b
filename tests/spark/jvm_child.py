"""`penstock run --drain` of engine_shop's flows, in which something happens to the JVM at points of an epoch. Started as a program.

Its arguments are a home, what happens (kill, stop, end) and the points, as point@n: the n-th time that the flow "shop" reaches
this one. IN_RUN is inside of a task.
"""

import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1]))

from faults.engine_shop import EPOCH_ROWS, report, shop
from penstock.engine.execute.job import travels_whole
from penstock.engine.run import runtime
from penstock.engine.run.options import RunOptions
from penstock.engine.run.service import serve
from waiting import until

IN_RUN = "in_run"
STOPPED = 3.0  # seconds


def jvm_above(process: psutil.Process) -> psutil.Process:
    return next(parent for parent in process.parents() if parent.name() == "java")


def jvm_below(process: psutil.Process) -> psutil.Process:
    return next(child for child in process.children() if child.name() == "java")


def stop(jvm: psutil.Process) -> None:
    """It goes on later, whoever waits for it meanwhile."""
    jvm.suspend()
    threading.Timer(STOPPED, jvm.resume).start()


def end(jvm: psutil.Process) -> None:
    """It ends with a code of its own, as it does without memory."""
    jvm.terminate()
    assert until(lambda: jvm.status() == psutil.STATUS_ZOMBIE, 60)  # whoever started it asks for its code


HAPPENING: dict[str, Callable[[psutil.Process], None]] = {"kill": psutil.Process.kill, "stop": stop, "end": end}


def armed(happens: str, points: set[str]) -> Callable[[str, str], Callable[[str], None]]:
    reached: Counter[str] = Counter()

    def fail(point: str) -> None:
        reached[point] += 1
        if f"{point}@{reached[point]}" in points:
            print(f"{happens} {point}", flush=True)
            HAPPENING[happens](jvm_below(psutil.Process()))

    return lambda setting, flow: fail if flow == "shop" else lambda point: None


class KillsFromBelow:
    """Rows pass; the first task to come here ends its JVM."""

    def __init__(self, once: Path) -> None:
        self.once = str(once)

    def __call__(self, rows: pa.Table) -> pa.Table:
        try:
            os.close(os.open(self.once, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return rows
        os.kill(jvm_above(psutil.Process()).pid, signal.SIGKILL)
        threading.Event().wait(30)  # the end of the JVM ends its workers
        return rows


def main(home: Path, happens: str, points: set[str]) -> None:
    travels_whole(sys.modules[__name__])  # tasks cannot import it
    runtime.armed = armed(happens, points)
    through = KillsFromBelow(home / "once") if IN_RUN in points else None
    serve([shop(through), report()], RunOptions(home=str(home), master="local[2]", mode="drain", max_rows=EPOCH_ROWS))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], set(sys.argv[3:]))
