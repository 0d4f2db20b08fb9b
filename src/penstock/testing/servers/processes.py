"""Servers for tests: processes on loopback, with ports that nobody has, that end with the test."""

import shutil
import signal
import socket
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from penstock.testing.servers.jars import NotToBeHad
from penstock.testing.waiting import until

PATIENCE = 60.0
_ATTEMPTS = 3
_LOG = "server.log"


class Started(ABC):
    """Something that is there for the time of a `with`, or between `start()` and `stop()`."""

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def stop(self) -> None: ...

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


class Server(Started):
    """A server of one process, below `place`."""

    called: ClassVar[str]
    ports_needed: ClassVar[int]
    patience: ClassVar[float] = PATIENCE  # seconds that a start may take

    def __init__(self, place: Path) -> None:
        self.place = place
        self.ports = free_ports(self.ports_needed)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        return self.ports[0]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @abstractmethod
    def start(self) -> None:
        """Starts it, with the data it left behind, and waits until it answers. Under its first address from the second time on."""

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Ends it, in an orderly way if nothing else is said, and waits."""
        end(self.process, how)
        self.process = None

    def kill(self) -> None:
        """SIGKILL, and waits."""
        end(self.process, signal.SIGKILL)
        self.process = None

    def freeze(self) -> None:
        """It stands still, its connections stay open."""
        self._running().send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    def restart(self) -> None:
        self.stop()
        self.start()

    @abstractmethod
    def _answers(self) -> bool:
        """Whether it is ready; asked until it is. An open port is not enough."""

    def _start(self, launch: Callable[[bool], "subprocess.Popen[bytes]"]) -> None:
        """launch: gets whether there is no data yet."""
        first = not (self.place / "data").exists()
        for _ in range(_ATTEMPTS if first else 1):
            self.process = launch(first)
            if self._ready(self.process):
                return
            self.stop(signal.SIGKILL)
            if first:  # somebody else may have taken a port meanwhile
                self.ports = free_ports(self.ports_needed)
        raise NotToBeHad(f"{self.called} did not start: {self._last_words()}")

    def _ready(self, process: "subprocess.Popen[bytes]") -> bool:
        return until(lambda: process.poll() is not None or self._answers(), self.patience) and process.poll() is None

    def _launch(self, command: list[str], env: Mapping[str, str] | None = None) -> "subprocess.Popen[bytes]":
        keeper = shutil.which("setpriv")  # where it is there, the server does not outlive a test process that was killed
        prefix = [keeper, "--pdeathsig", "TERM"] if keeper and threading.current_thread() is threading.main_thread() else []
        with (self.place / _LOG).open("ab") as log:
            return subprocess.Popen([*prefix, *command], env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.place)

    def _running(self) -> "subprocess.Popen[bytes]":
        if self.process is None:
            raise NotToBeHad(f"{self.called} is not running")
        return self.process

    def _last_words(self) -> str:
        lines = (self.place / _LOG).read_text(errors="replace").splitlines()
        return " / ".join(lines[-3:]) or "it said nothing"


def end(process: "subprocess.Popen[bytes] | None", how: signal.Signals) -> None:
    """Sends it the signal, also if it stands still, and waits; if that takes too long it is killed."""
    if process is None:
        return
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGCONT)
        process.send_signal(how)
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()
