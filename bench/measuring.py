"""Seconds, processor time and memory of this process with all its children, and how much of the machine others used meanwhile."""

import os
import statistics
import threading
import time
from collections.abc import Iterable, Sequence
from types import TracebackType

import psutil


def family() -> list[psutil.Process]:
    me = psutil.Process()
    return [me, *me.children(recursive=True)]


def cpu_seconds() -> float:
    """Processor seconds of the family so far, of ended children too."""
    total = 0.0
    for process in family():
        try:
            used = process.cpu_times()
        except psutil.Error:
            continue
        total += used.user + used.system + used.children_user + used.children_system
    return total


def resident_bytes() -> int:
    total = 0
    for process in family():
        try:
            total += process.memory_info().rss
        except psutil.Error:
            continue
    return total


def _machine_seconds() -> float:
    used = psutil.cpu_times()
    return float(sum(used[:3]) + used.irq + used.softirq + used.steal)


class Meter:
    """Of a `with`: `seconds`, `cpu` (ours) and `foreign`, the share of all cores that others used. 0.3 means: judge by cpu."""

    seconds = cpu = foreign = 0.0

    def __enter__(self) -> "Meter":
        self._cpu, self._machine, self._start = cpu_seconds(), _machine_seconds(), time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.seconds = time.perf_counter() - self._start
        self.cpu = cpu_seconds() - self._cpu
        others = _machine_seconds() - self._machine - self.cpu
        self.foreign = min(
            1.0, max(0.0, others / self.seconds / (os.cpu_count() or 1))
        )  # the kernel counts in hundredths of a second


class Peak:
    """The most memory that the family held during a `with`, looked at ten times a second; pages that are shared count for each."""

    def __enter__(self) -> "Peak":
        self.bytes = resident_bytes()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def _look(self) -> None:
        while not self._over.wait(0.1):
            self.bytes = max(self.bytes, resident_bytes())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()


def median(values: Iterable[float]) -> float:
    return statistics.median(list(values))


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
