"""Consumers of a queue that are started and killed, and all that they said."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from faults.own_processes import OwnProcess

SCRIPT = Path(__file__).with_name("queue_workers.py")


class Crew:
    """Words and meaning of what is said: see `queue_workers`."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process, self.alive, self.killed = process, dict[int, OwnProcess](), 0
        self.lines: list[list[str]] = []

    def listen(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            words = line.split()
            self.lines.append(words)
            if words[0] == "pid":
                self.alive[int(words[1])] = OwnProcess(int(words[1]))

    def start(self) -> None:
        assert self.process.stdin
        print("another", file=self.process.stdin, flush=True)

    def kill(self, pid: int) -> None:
        self.killed += self.alive.pop(pid).send(signal.SIGKILL)

    def said(self, word: str) -> list[list[str]]:
        return [words[1:] for words in list(self.lines) if words[0] == word]


@contextmanager
def crew(where: str | Path, prefetch: int) -> Iterator[Crew]:
    """Of the queue q there; ends every consumer, whatever happens."""
    command = [sys.executable, str(SCRIPT), str(where), "q", str(prefetch)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        found = Crew(process)
        listener = threading.Thread(target=found.listen)
        listener.start()
        try:
            yield found
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # also those that it has just forked and not named yet
            process.wait()
            listener.join(30)
