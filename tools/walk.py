"""Counts the functions that two paths go through: a message from send to ack, and an order from `topic produce` to a view.

    python tools/walk.py message [--list]
    python tools/walk.py order [--list]

Each path is walked a few times first, so that what happens once (files, plans, a JVM) is not counted; then the distinct
functions of Penstock that it enters are, by room, without comprehensions, lambdas and generated methods.
"""

import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import penstock

ROOT = f"{Path(penstock.__file__).parent}{os.sep}"
WARM = 5


class Walk:
    """The functions that were entered, and how often."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()

    def of(self, step: Callable[[], object]) -> None:
        threading.setprofile(self._enter)
        sys.setprofile(self._enter)
        try:
            step()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]

    def _enter(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOT) and not code.co_name.startswith("<"):
            self.calls[code.co_filename.removeprefix(ROOT), code.co_qualname] += 1

    def __str__(self) -> str:
        rooms = Counter(file.split(os.sep)[0].removesuffix(".py") for file, _ in self.calls)
        parts = ", ".join(f"{room} {count}" for room, count in sorted(rooms.items()))
        return f"{len(self.calls)} functions in {sum(self.calls.values())} calls ({parts})"


def message(home: Path) -> dict[str, Walk]:
    """One send, one receive, one ack, on the embedded log."""
    queue, got = penstock.Queue.open("emails", home=home), list[Any]()
    with queue.consumer() as consumer:
        steps: dict[str, Callable[[], object]] = {
            "send": lambda: queue.send(b"hello"),
            "receive": lambda: got.extend(consumer.receive()),
            "ack": lambda: got.pop().ack(),
        }
        return _walked(steps)


def order(home: Path) -> dict[str, Walk]:
    """One row of `penstock topic produce`, filtered into a view by one epoch."""
    from click.testing import CliRunner

    from penstock.cli.main import run

    os.chdir(home)
    os.environ["PENSTOCK_HOME"] = str(home)

    def call(*words: str, given: str = "") -> None:
        with CliRunner().isolation(input=given):
            assert run([*words]) == 0

    call("topic", "create", "orders", "--schema", "id string, amount double")
    flow, numbers = penstock.Flow("shop"), iter(range(1_000))
    flow.stream("orders", "id string, amount double").where("amount > 1").view("large", key="id")

    def produce() -> None:
        call("topic", "produce", "orders", given=f'{{"id": "a{next(numbers)}", "amount": 2.5}}\n')

    return _walked({"topic produce": produce, "epoch": lambda: flow.catch_up()})


def _walked(steps: dict[str, Callable[[], object]]) -> dict[str, Walk]:
    for _ in range(WARM):
        for step in steps.values():
            step()
    walks = {name: Walk() for name in steps}
    for name, step in steps.items():
        walks[name].of(step)
    walks["all"] = Walk()
    for walk in [walks[name] for name in steps]:
        walks["all"].calls += walk.calls
    return walks


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="walk-") as directory:
        found = {"message": message, "order": order}[sys.argv[1]](Path(directory))
    for name, walk in found.items():
        print(f"{name}: {walk}")
    if "--list" in sys.argv:
        for (file, function), count in sorted(found["all"].calls.items()):
            print(f"{count:6} {file} {function}")
