"""A capture in processes of its own that are killed: a script that forks starts one whenever it is told to."""

import json
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from faults.own_processes import OwnProcess
from penstock.log.file.log import FileLog
from penstock.storage.local import LocalStorage
from waiting import until

HERE = Path(__file__).parent
PATIENCE = 120.0


class Captured:
    """A capture in processes that can be killed."""

    def __init__(self, script: str, home: Path, of: str) -> None:
        self.log = FileLog(LocalStorage(home / "log"))
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / script), str(home), of],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={"PYTHONPATH": f"{HERE.parent}:{Path(sys.modules['penstock'].__path__[0]).parent}", "PATH": "/usr/bin:/bin"},
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.alive: OwnProcess | None = None
        self.left = -1  # tables that are not copied
        self.points = 0
        self.seen: list[str] = []  # points, over all starts

    def start(self, die: int = 0, **asked: object) -> None:
        """die: behind so many points of the writer it kills itself."""
        assert self.process.stdin
        asked["die"] = die
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        self.alive, self.points, self.left = None, 0, -1
        while self.alive is None:
            self.hear()

    def hear(self, wait: float = PATIENCE) -> bool:
        """Takes one line; False if none came."""
        try:
            word, _, rest = self._lines.get(timeout=wait).strip().partition(" ")
        except queue.Empty:
            return False
        assert word != "error", rest
        if word == "pid":
            self.alive = OwnProcess(int(rest))
        elif word == "left":
            self.left = int(rest)
        else:
            self.points += 1
            self.seen.append(rest)
        return True

    def gone(self) -> bool:
        """Whether the process has ended; what it said is heard first."""
        while self.hear(0.001):
            pass
        return self.alive is None or not self.alive.send(signal.SIGCONT)

    def kill(self) -> None:
        assert self.alive
        self.alive.send(signal.SIGKILL)
        assert until(self.gone)

    def close(self) -> None:
        if self.alive and not self.gone():
            self.kill()
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.wait(30)
        self._reader.join(30)
        self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._lines.put(line)


@contextmanager
def captured(script: str, home: Path, of: str) -> Iterator[Captured]:
    made = Captured(script, home, of)
    try:
        yield made
    finally:
        made.close()
