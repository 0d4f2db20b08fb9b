"""`penstock` in processes that tests kill, without Spark: every command is a process group of its own, and starts at once.

Started as a program it forks a process for each command that it is told, before it uses any thread. Every line of its standard
input is a command to start, or a process to wait for, as JSON; the answer is the process's id, or how it ended."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))

from faults.engine_shop import SparkFree
from penstock.cli.main import run
from penstock.engine.run import service

# What commands import when they run, and would import anew in each process.
WANTED = ("cli.flow.load", "cli.flow.run", "cli.flow.show", "cli.cdc.beside", "cli.cdc.running", "capture.postgres.kind")
CLIENTS = ("confluent_kafka", "duckdb", "polars", "psycopg")


class Forks:
    """A program that forks; what its commands print goes to files of `place`."""

    def __init__(self, place: Path) -> None:
        self._place, self._numbers = place, count()

    def __enter__(self) -> Self:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._program = subprocess.Popen([sys.executable, __file__], text=True, **pipes)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._program.communicate()  # it ends whatever is left

    def start(self, *words: str, **env: str) -> "Command":
        """`penstock` with these words, in the directory and the environment of now, and `env`."""
        out = self._place / f"{next(self._numbers)}-{words[0]}.log"
        told = {"words": words, "env": {**os.environ, **env}, "cwd": os.getcwd(), "out": str(out)}
        return Command(self, self.ask(told), out)

    def run(self, *words: str, **env: str) -> int:
        """How it ended: its exit code, or minus the signal that killed it."""
        return self.start(*words, **env).wait()

    def ask(self, what: Any) -> int:
        assert self._program.stdin
        assert self._program.stdout
        self._program.stdin.write(json.dumps(what) + "\n")
        self._program.stdin.flush()
        return int(self._program.stdout.readline())


@dataclass
class Command:
    """One that runs, or has ended."""

    forks: Forks
    pid: int
    out: Path
    ended: int | None = None

    @property
    def said(self) -> str:
        return self.out.read_text()

    def kill(self) -> int:
        """SIGKILL, to all of its processes."""
        return self._end(signal.SIGKILL)

    def interrupt(self) -> int:
        """As Ctrl-C does."""
        return self._end(signal.SIGINT)

    def wait(self) -> int:
        if self.ended is None:
            self.ended = self.forks.ask(self.pid)
        return self.ended

    def _end(self, how: signal.Signals) -> int:
        if self.ended is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, how)
        return self.wait()


def main() -> None:
    os.fsync = os.fdatasync = lambda fd: None  # a kill takes nothing from the kernel
    service.Runtime = SparkFree
    for name in (*(f"penstock.{name}" for name in WANTED), *CLIENTS):
        with suppress(ImportError):
            import_module(name)
    left = set[int]()
    for line in sys.stdin:
        told = json.loads(line)
        if isinstance(told, int):
            left.discard(told)
            answer = os.waitstatus_to_exitcode(os.waitpid(told, 0)[1])
        else:
            answer = os.fork() or _commanded(**told)
            with suppress(ProcessLookupError):  # it has ended
                os.setpgid(answer, answer)  # whoever gets the answer may kill the group
            left.add(answer)
        print(answer, flush=True)
    for pid in left:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def _commanded(words: list[str], env: dict[str, str], cwd: str, out: str) -> NoReturn:
    code = 1
    try:
        os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number in (1, 2):
            os.dup2(os.open(out, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600), number)
        os.environ.clear()
        os.environ.update(env)
        os.chdir(cwd)
        code = run(words)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
