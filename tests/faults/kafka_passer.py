"""A live flow that passes rows of one topic on to another, in a process of its own, which ends with its standard input.

python kafka_passer.py HOME [--finish]. A driver that fails is replaced. --finish: to the ends found at the start."""

import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from faults.engine_shop import SparkFree
from penstock import Flow
from penstock.engine import loop
from penstock.engine.opening import Wish
from penstock.errors import PenstockError

PARTITIONS = 4


def passed_on() -> Flow:
    flow = Flow("passed")
    flow.stream("orders", "n long").to("copied", partitions=PARTITIONS)
    return flow


def epochs(home: Path, stop: threading.Event, finish: bool) -> None:
    runtime = SparkFree(home)
    driver = runtime.driver(runtime.plan(passed_on()), threaded=False)
    driver.start()
    try:
        if finish:
            loop.catch_up(driver, stop, lambda report: None)
            driver.deliverer.settle()
        while not stop.is_set() and not finish:
            if driver.epoch(Wish()) is None:
                stop.wait(0.02)
    finally:
        driver.release()


def main(home: Path, finish: bool) -> None:
    stop = threading.Event()
    if not finish:
        threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    while not stop.is_set():
        try:
            epochs(home, stop, finish)
            return
        except PenstockError as error:
            print(f"{type(error).__name__}: {error.what} {' '.join(error.detail)}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--finish" in sys.argv)
