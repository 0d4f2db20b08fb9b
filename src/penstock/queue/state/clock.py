"""The time that delays and expiries are measured with: the machine's clock as it stood once, and from then on what really passed.

Whatever is done to the machine's clock, an hour is an hour. On a log the moment is shared by all processes of this boot, so that
one of them sends by the same time as another takes; after a restart of the machine its clock is read anew. It runs on while the
machine sleeps.
"""

import time
from contextlib import suppress
from typing import NamedTuple

from crc32c import crc32c

from penstock.core.time import Clock, SystemClock
from penstock.errors import AlreadyThere, Damaged, NotFound, PenstockError
from penstock.log.groups.leases import Beat, LeaseClock, MachineClock
from penstock.storage.port import Storage

_BOOT_TIME = getattr(time, "CLOCK_BOOTTIME", None)  # runs on while the machine sleeps; not every system has it
_NAME = "@clock-"  # no queue can be called that


class Now(NamedTuple):
    """A moment, by two clocks."""

    boot: str  # leases end with the boot that they were given in
    beat: int  # microseconds of this boot: what leases are measured with
    wall: int  # microseconds since 1970: what delays and expiries are measured with; nobody sets it


class BootClock:
    """Microseconds since the machine was started, its sleep included; the same for every process of it."""

    def __init__(self) -> None:
        self._machine = MachineClock()

    def beat(self) -> Beat:
        beat = self._machine.beat()
        return beat if _BOOT_TIME is None else Beat(beat.boot, time.clock_gettime_ns(_BOOT_TIME) // 1000)


class SteadyClock:
    """A wall clock that nobody can set, for one process."""

    def __init__(self, wall: Clock | None = None, passing: LeaseClock | None = None) -> None:
        self._wall, self._passing = wall or SystemClock(), passing or BootClock()
        self._ahead: dict[str, int] = {}  # by boot: how far the wall clock is ahead of what passed

    def now(self) -> int:
        boot, at = self._passing.beat()
        if boot not in self._ahead:
            self._ahead = {boot: self._found(boot, self._wall.now() - at)}
        return at + self._ahead[boot]

    def _found(self, boot: str, ahead: int) -> int:
        return ahead


class SharedClock(SteadyClock):
    """The same for all processes that use this directory."""

    def __init__(self, storage: Storage, directory: str, wall: Clock, passing: LeaseClock | None = None) -> None:
        super().__init__(wall, passing)
        self._storage, self._directory = storage, directory

    def _found(self, boot: str, ahead: int) -> int:
        """What the first process of this boot noted; a boot without a name is shared with nobody."""
        if not boot:
            return ahead
        path = f"{self._directory}/{_NAME}{boot}"
        with suppress(NotFound):
            return _read(bytes(self._storage.read(path)), path)
        try:
            self._storage.publish(path, _written(ahead))
        except AlreadyThere:
            return _read(bytes(self._storage.read(path)), path)
        except PenstockError:  # a log that cannot be written to can still be looked at
            return ahead
        for name in self._storage.list(self._directory):
            if name.startswith(_NAME) and name != f"{_NAME}{boot}":
                self._storage.remove(f"{self._directory}/{name}")
        return ahead


def _written(ahead: int) -> bytes:
    return f"{ahead} {crc32c(str(ahead).encode()):08x}".encode()


def _read(data: bytes, path: str) -> int:
    text = data.partition(b" ")[0]
    with suppress(ValueError):
        if _written(int(text)) == data:
            return int(text)
    raise Damaged(f"{path} is damaged: its bytes are not those that were written", hint="remove it; delays are then measured anew")
