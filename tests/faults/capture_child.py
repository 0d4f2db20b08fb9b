"""Runs a capture until it is killed; run by test_capture_law. Every line on standard input starts it once more, in a process of its
own that is forked, so that a start costs next to nothing.

argv: a home, and the URL of the database. A line is JSON: `die` (after so many points of the writer it kills itself; 0: never),
`copying` (only points that are passed with a chunk of a copy count), `again` (the server is told nothing of what is durable, and
sends everything again) and `batch_bytes` as the engine has it. Said on standard output, a line each: `pid N`, `point NAME`,
`left N` (tables that are not copied), `error TEXT`."""

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from capture_followed import DEFINITION, PUBLICATION, SLOT, SMALL
from penstock.capture.port import Batch, Json
from penstock.capture.postgres.engine import PostgresEngine, Source
from penstock.capture.postgres.position import WalPosition
from penstock.capture.postgres.stream.replication import Replication
from penstock.capture.runner import CaptureRun, Progress
from penstock.log.file.log import FileLog
from penstock.storage.local import LocalStorage


class Followed(PostgresEngine):
    """Knows what it gave out last."""

    copying = False

    def next(self, wait: float) -> Batch | None:
        batch = super().next(wait)
        self.copying = batch is not None and batch.intent["kind"] == "chunk"
        return batch


class SentAgain(Followed):
    """The server learns nothing of what is written, and sends everything since the slot was confirmed last with each start."""

    def written(self, position: Json) -> None: ...

    def _opened(self, at: WalPosition | None) -> Replication:
        return super()._opened(None)


def say(text: str) -> None:
    os.write(1, (text + "\n").encode())


def run(home: Path, url: str, die: int, copying: bool = False, again: bool = False, batch_bytes: int = SMALL.batch_bytes) -> None:
    left, tables = die, -1

    def point(name: str) -> None:
        nonlocal left
        say(f"point {name}")
        left -= engine.copying or not copying
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    def report(progress: Progress) -> None:
        nonlocal tables
        if len(progress.status.snapshots) != tables and not progress.waiting:
            tables = len(progress.status.snapshots)
            say(f"left {tables}")

    kind, settings = SentAgain if again else Followed, replace(SMALL, batch_bytes=batch_bytes)
    engine = kind(Source(url, SLOT, PUBLICATION), LocalStorage(home / "engine"), settings)
    try:
        CaptureRun(DEFINITION, FileLog(LocalStorage(home / "log")), LocalStorage(home / "capture"), engine, report, point).run()
    except BaseException as error:
        say("error " + " / ".join(f"{type(error).__name__}: {error}".splitlines()))
    os._exit(1)


def serve(home: str, of: str, run: Callable[..., None]) -> None:
    """Forks whenever it is told to."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    pa.array([1]).cast(pa.utf8())  # what Arrow imports when first used is imported once, here
    import psycopg  # noqa: F401

    for line in sys.stdin:
        asked = json.loads(line)
        pid = os.fork()
        if not pid:
            run(Path(home), of, **asked)
        say(f"pid {pid}")


if __name__ == "__main__":
    serve(*sys.argv[1:], run=run)
