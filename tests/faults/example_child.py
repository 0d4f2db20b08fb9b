"""Runs the flows of an example in processes that are killed. Started as a program; it forks before it uses any thread.

Every line of its standard input is a home, an example and a list of settings of PENSTOCK_FAIL, as JSON. For each setting a process,
a group of its own, runs the flows to their end or to its kill; then one runs them without any. It answers with how each ended."""

import json
import os
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from faults.engine_shop import SparkFree
from penstock.cli.flow.load import load_flows
from penstock.engine.run import loop

os.fsync = os.fdatasync = lambda fd: None  # a kill takes nothing from the kernel; power loss is another test's matter


def drain(home: Path, example: Path) -> None:
    os.chdir(example)  # static tables are found from where the user stands
    runtime = SparkFree(home)
    graphs = load_flows((str(example / "flow.py"),))
    for graph in graphs:
        driver = runtime.driver(runtime.plan(graph, graphs))
        driver.start()
        loop.drain(driver, threading.Event(), lambda report: None, 2)
        driver.stop()


def ended(home: Path, example: Path, fail: str) -> int:
    """The exit code of one run, or minus the signal that killed it."""
    child = os.fork()
    if not child:
        os.setsid()
        os.environ["PENSTOCK_FAIL"] = fail
        try:
            drain(home, example)
        except BaseException as error:
            print(error, file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    for line in sys.stdin:
        home, example, fails = json.loads(line)
        print(json.dumps([ended(Path(home), Path(example), fail) for fail in [*fails, ""]]), flush=True)
