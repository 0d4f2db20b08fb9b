"""Runs a program with a row on its standard input."""

import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from typing import IO

from penstock.core.time import duration_text
from penstock.sinks.actions.command import KEY_VARIABLE, CommandDefinition
from penstock.sinks.actions.port import Intent, NotDone, Refused

DATA_ERROR = 65  # EX_DATAERR of sysexits.h
_SHOWN = 500  # bytes of what it said last


class Command:
    """One program. What it says goes to a temporary file, so that much of it takes no memory."""

    def __init__(self, definition: CommandDefinition) -> None:
        self._definition = definition
        self.called = f"command {definition.target}"

    def open(self) -> None:
        """There is nothing to open."""

    def do(self, intent: Intent) -> None:
        with tempfile.TemporaryFile() as said:
            code = self._run(intent, said)
            if code == 0:
                return
            ended = f"ended with {code}" if code > 0 else f"was ended by {signal.Signals(-code).name}"
            reason = f"{self._definition.target} {ended}{_last_words(said)}"
            raise Refused(reason) if code == DATA_ERROR else NotDone(reason)

    def close(self) -> None:
        """There is nothing to close."""

    def _run(self, intent: Intent, said: IO[bytes]) -> int:
        environment = {**os.environ, KEY_VARIABLE: intent.key}
        try:
            process = subprocess.Popen(
                self._definition.words, stdin=subprocess.PIPE, stdout=said, stderr=said, env=environment, start_new_session=True
            )
        except OSError as error:
            raise NotDone(f"{self._definition.target} cannot be run: {error.strerror}") from error
        try:
            process.communicate(intent.json + b"\n", self._definition.timeout.total_seconds())
        except subprocess.TimeoutExpired as error:
            raise NotDone(f"{self._definition.target} took longer than {duration_text(self._definition.timeout)}") from error
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return process.returncode


def _last_words(said: IO[bytes]) -> str:
    size = said.seek(0, os.SEEK_END)
    said.seek(max(size - _SHOWN, 0))
    text = ascii(said.read().decode("utf-8", "replace").strip())[1:-1]
    return f": {text}" if text else ""
