"""A flow under `penstock run` for some minutes: what its processes hold and use while nothing comes, and while rows trickle in."""

import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import psutil
from report import Table, options, parsed, percent, publish

from penstock import Producer, View
from penstock.core.schema import Schema
from penstock.log.open import open_log
from penstock.log.port import TopicSpec

_FLOW = """
from penstock import Flow, Tumbling, agg

shop = Flow("shop")
orders = shop.stream("orders", "user string, amount long, at timestamp", time="at", lateness="1 second")
orders.window(Tumbling("10 seconds"), by="user").agg(n=agg.count(), total=agg.sum("amount")).view("sales")
"""


class Sampled:
    """The processes of a run: the driver, its JVM, Python workers."""

    def __init__(self, process: psutil.Process) -> None:
        self.process = process
        self.before = self._seconds()
        self.at = time.monotonic()

    def _family(self) -> list[psutil.Process]:
        return [self.process, *self.process.children(recursive=True)]

    def _seconds(self) -> dict[int, float]:
        found = {}
        for each in self._family():
            try:
                used = each.cpu_times()
                found[each.pid] = used.user + used.system
            except psutil.Error:
                continue
        return found

    def memory(self) -> tuple[str, ...]:
        """MiB of the driver, the JVM and Python workers: what each has for itself."""
        kinds = {"driver": 0, "java": 0, "worker": 0}
        for each in self._family():
            try:
                kind = "driver" if each.pid == self.process.pid else "java" if "java" in each.name() else "worker"
                kinds[kind] += each.memory_full_info().uss
            except psutil.Error:
                continue
        return tuple(f"{size / 2**20:.0f}" for size in kinds.values())

    def share(self) -> float:
        """Of one core, since the last call."""
        now, at = self._seconds(), time.monotonic()
        used = sum(seconds - self.before.get(pid, 0.0) for pid, seconds in now.items())
        share = used / (at - self.at)
        self.before, self.at = now, at
        return share


def main() -> None:
    parser = options(__doc__, 10, 1)
    parser.add_argument("--every", type=float, default=0.5, help="seconds between two rows, in every second minute")
    given = parsed(parser)
    minute = 10.0 if given.quick else 60.0
    out = Table(
        "A flow under `penstock run`: a window into a view",
        *("minute", "rows", "share of a core", "driver, MiB", "JVM, MiB", "Python workers, MiB"),
    )
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        home, flow = Path(name) / "home", Path(name) / "shop.py"
        flow.write_text(_FLOW)
        topic = open_log(home).create(TopicSpec("orders", 1, Schema.of("user string, amount long, at timestamp"), "at"))
        run = subprocess.Popen(
            [sys.executable, "-c", "from penstock.cli.main import main; main()", "--home", str(home), "run", "--quiet", str(flow)]
        )
        try:
            with Producer(topic, linger="0 ms") as producer:
                _send(producer)
                _wait(home)
                sampled = Sampled(psutil.Process(run.pid))
                for number in range(given.rows):
                    rows = 0 if number % 2 == 0 else _trickle(producer, minute, given.every)
                    if not rows:
                        time.sleep(minute)
                    out.add(number + 1, rows, percent(sampled.share()), *sampled.memory())
        finally:
            run.terminate()
            run.wait(60)
    publish("idle", [out], given.markdown)


def _send(producer: Producer) -> None:
    producer.send({"user": "ann", "amount": 1, "at": datetime.now(UTC)})
    producer.flush()


def _trickle(producer: Producer, seconds: float, every: float) -> int:
    started, rows = time.monotonic(), 0
    while time.monotonic() - started < seconds:
        _send(producer)
        rows += 1
        time.sleep(every)
    return rows


def _wait(home: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if (home / "views" / "sales.db").exists():
            with View(home / "views", "sales") as view:
                if view.progress.epoch >= 0:
                    return
        time.sleep(0.2)
    raise SystemExit("the flow did not start")


if __name__ == "__main__":
    main()
