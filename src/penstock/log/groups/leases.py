"""The time that leases are measured with: it runs evenly, whatever is done to the machine's clock.

It is the same for all processes of a machine and begins anew when the machine does; so a lease also remembers the boot that it was
given in. It stands still while the machine sleeps: nobody's lease runs out in that time.
"""

import time
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol

_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Beat(NamedTuple):
    """A moment: microseconds since some point of this boot."""

    boot: str
    at: int


class LeaseClock(Protocol):
    def beat(self) -> Beat: ...


class MachineClock:
    """CLOCK_MONOTONIC, the same for every process of this machine."""

    def beat(self) -> Beat:
        return Beat(_boot_id(), time.monotonic_ns() // 1000)


@cache
def _boot_id() -> str:
    try:
        return _BOOT.read_text().strip()
    except OSError:  # not Linux: a lease from before the last start is recognised by a time in the future
        return ""


class ManualClock:
    """A clock for tests: it moves only when it is set."""

    def __init__(self, at: int = 1_000_000) -> None:
        self.boot, self.at = "boot", at

    def beat(self) -> Beat:
        return Beat(self.boot, self.at)

    def advance(self, seconds: float) -> None:
        self.at += round(seconds * 1_000_000)


def runs(renewed: Beat, lease: int, now: Beat) -> bool:
    """Whether a lease of so many microseconds, renewed then, still runs."""
    return renewed.boot == now.boot and renewed.at <= now.at < renewed.at + lease
