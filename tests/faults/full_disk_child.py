"""A live run on a small disk of its own (argv[1]), which is filled between two epochs; room is made once the run says it waits."""

import sys
import threading
from pathlib import Path
from typing import Any

from faults.engine_shop import EPOCH_ROWS, SparkFree, check, drain, fill, make_input, shop
from penstock.engine.run import loop
from penstock.engine.run.waiting import WaitMessages


def main(home: Path) -> None:
    given = make_input()
    fill(home, given)
    runtime, stop, said = SparkFree(home), threading.Event(), list[str]()
    driver = runtime.driver(runtime.plan(shop()))
    driver.start()
    ends, ballast = loop.ends(driver), home / "ballast"

    def told(text: str) -> None:
        said.append(text)
        print(text, flush=True)
        if len(said) == 3:
            ballast.unlink()

    def seen(report: Any) -> None:
        reached = {(n, p): at.next for n, s in report.decision.sources.items() for p, at in s.partitions.items()}
        if report.decision.epoch == 1:
            fill_up(ballast)
        if reached == ends and said:
            stop.set()

    loop.run(driver, stop, seen, most=EPOCH_ROWS, messages=WaitMessages(told, told))
    driver.deliverer.again()
    driver.stop()
    drain(home)
    check(home, given)
    print("whole")


def fill_up(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
