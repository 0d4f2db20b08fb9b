"""Connections that the lookups of one process share: a bounded number, opened when they are needed, and closed at the end."""

import atexit
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

WAIT_SECONDS = 60.0  # for a connection that another lookup has
CHECK_SECONDS = 10.0  # that a connection may lie unused and still be taken for alive


class Closable(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


class NoConnection(Exception):
    """All of them are in use, and stay so."""


@dataclass
class Pool(Generic[C]):
    """At most so many connections. alive: raises where a connection that lay unused for a while is of no use any more."""

    connect: Callable[[], C]
    alive: Callable[[C], object]
    most: int
    now: Callable[[], float] = time.monotonic
    _idle: list[tuple[float, C]] = field(default_factory=list)
    _open: int = 0
    _closed: bool = False
    _change: threading.Condition = field(default_factory=threading.Condition)

    @contextmanager
    def connection(self) -> Iterator[C]:
        """One for the time of a `with`. If that is left by an exception the connection is closed, and with it those that lie
        unused: what broke it has broken them, too."""
        held = self._taken()
        try:
            yield held
        except BaseException:
            self._drop(held)
            self._close_idle()
            raise
        self._give_back(held)

    def close(self) -> None:
        """Those that are in use are closed as they come back."""
        with self._change:
            self._closed = True
        self._close_idle()

    @property
    def open(self) -> int:
        """How many there are, in use or not."""
        with self._change:
            return self._open

    def _taken(self) -> C:
        found = self._idle_or_place()
        while found is not None:
            since, connection = found
            if self.now() - since < CHECK_SECONDS or self._is_alive(connection):
                return connection
            self._drop(connection)
            found = self._idle_or_place()
        try:
            return self.connect()
        except BaseException:
            self._leave_place()
            raise

    def _idle_or_place(self) -> tuple[float, C] | None:
        """A connection that lies unused, or None and the right to open one."""
        with self._change:
            if not self._change.wait_for(lambda: self._idle or self._open < self.most, WAIT_SECONDS):
                raise NoConnection(f"all {self.most} connections are in use for {WAIT_SECONDS:.0f} seconds")
            if self._idle:
                return self._idle.pop()
            self._open += 1
            return None

    def _is_alive(self, connection: C) -> bool:
        try:
            self.alive(connection)
        except Exception:  # whatever the client calls it
            return False
        return True

    def _give_back(self, connection: C) -> None:
        with self._change:
            if not self._closed:
                self._idle.append((self.now(), connection))
                self._change.notify()
                return
        self._drop(connection)

    def _drop(self, connection: C) -> None:
        with suppress(Exception):
            connection.close()
        self._leave_place()

    def _leave_place(self) -> None:
        with self._change:
            self._open -= 1
            self._change.notify()

    def _close_idle(self) -> None:
        with self._change:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            self._drop(connection)


@dataclass
class _Used:
    pool: Pool[Any]
    users: int = 0


_POOLS: dict[tuple[int, Hashable], _Used] = {}  # by process, for a child must not speak on its parent's connections
_GUARD = threading.Lock()


class Shared(Generic[C]):
    """A part in the pool of these settings; the pool is closed with the last part."""

    def __init__(self, settings: Hashable, make: Callable[[], Pool[C]]) -> None:
        self._settings = (os.getpid(), settings)
        with _GUARD:
            used = _POOLS.setdefault(self._settings, _Used(make()))
            used.users += 1
        self.pool: Pool[C] = used.pool

    def close(self) -> None:
        with _GUARD:
            used = _POOLS.get(self._settings)
            if used is None or used.pool is not self.pool:
                return
            used.users -= 1
            if not used.users:
                del _POOLS[self._settings]
        if not used.users:
            self.pool.close()


def close_all() -> None:
    """When the process ends, so that servers are told."""
    for (process, _), used in list(_POOLS.items()):
        if process == os.getpid():
            used.pool.close()


atexit.register(close_all)
