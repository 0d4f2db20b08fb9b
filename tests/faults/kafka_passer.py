"""A live flow that passes rows of one topic on to another, in a process of its own, which ends with its standard input.

python kafka_passer.py HOME [--finish]. A driver that fails is replaced. --finish: to the ends found at the start."""

import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from faults.engine_shop import SparkFree
from penstock import Flow
from penstock.engine.run import loop
from penstock.engine.run.waiting import WaitMessages
from penstock.errors import PenstockError

PARTITIONS = 4
TRIES = 20


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
        else:
            loop.run(
                driver,
                stop,
                lambda report: None,
                messages=WaitMessages(lambda text: print(text.splitlines()[0], flush=True), lambda text: None),
            )
    finally:
        driver.release()


def until_told(stop: threading.Event) -> None:
    sys.stdin.read()
    stop.set()


def main(home: Path, finish: bool) -> None:
    stop = threading.Event()
    if not finish:
        threading.Thread(target=until_told, args=(stop,), daemon=True).start()
    for _ in range(TRIES):
        try:
            return epochs(home, stop, finish)
        except PenstockError as error:
            print(f"{type(error).__name__}: {error.what} {' '.join(error.detail)}", flush=True)
        if stop.is_set():
            return None
    sys.exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--finish" in sys.argv)
