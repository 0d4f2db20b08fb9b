"""Runs a capture of any engine until it is killed; run by test_capture_kinds_killed as capture_child is.

argv: a home, and the definition as JSON. A line is JSON: `die`, after how many points of the writer it kills itself; 0: never."""

import os
import signal
import sys
from pathlib import Path

import orjson

from faults.capture_child import say, serve
from penstock.capture.definition import CaptureDefinition
from penstock.capture.kind import kind_of
from penstock.capture.runner import CaptureRun
from penstock.log.file.log import FileLog
from penstock.storage.local import LocalStorage


def run(home: Path, of: str, die: int) -> None:
    left = die

    def point(name: str) -> None:
        nonlocal left
        say(f"point {name}")
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    definition = CaptureDefinition.of(orjson.loads(of))
    engine = kind_of(definition.engine).open(definition, LocalStorage(home / "engine"))
    try:
        CaptureRun(definition, FileLog(LocalStorage(home / "log")), LocalStorage(home / "capture"), engine, fail=point).run()
    except BaseException as error:
        say("error " + " / ".join(f"{type(error).__name__}: {error}".splitlines()))
    os._exit(1)


if __name__ == "__main__":
    serve(*sys.argv[1:], run=run)
