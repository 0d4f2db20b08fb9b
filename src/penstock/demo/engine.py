"""The demo's engine: `penstock run` as a child process, in a process group of its own so that it can be killed whole."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from penstock.errors import EngineError

FLOWS = ("shop.py", "report.py")
EVERY = "500 ms"
_CALL = "from penstock.cli.main import main; main()"
_PATIENCE = 10.0  # seconds to finish an epoch and stop Spark, when asked to


class Engine:
    """At most one process at a time. What it says goes to `engine.log` in the home."""

    def __init__(self, home: Path) -> None:
        self.home, self.log = home, home / "engine.log"
        self.point: str | None = None  # where it is to be killed
        self._process: subprocess.Popen[bytes] | None = None
        self._read = 0
        for name in FLOWS:
            shutil.copy(Path(__file__).parent / "flows" / name, home / name)

    def start(self, *, drain: bool = False, kill_at: str | None = None) -> None:
        """Runs both flows, until stopped or to the end. kill_at: where the process group kills itself as by `kill -9`."""
        options = ["--drain"] if drain else ["--every", EVERY]
        self.point = kill_at
        env = {**os.environ, "PENSTOCK_HOME": str(self.home), "PENSTOCK_FAIL": kill_at or ""}
        command = [sys.executable, "-c", _CALL, "run", *(str(self.home / name) for name in FLOWS), *options]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=self.home
            )

    def was_killed(self) -> bool:
        """Whether it died where it was meant to. EngineError if it ended in any other way than it should."""
        code = self._process.poll() if self._process else 0
        if code in (None, 0):
            return False
        if code == -signal.SIGKILL and self.point:
            return True
        raise EngineError("the engine stopped, and was not meant to", *self._last_words(code), hint=f"its log is {self.log}")

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def said(self) -> list[str]:
        """Whole lines that it has said since the last call."""
        if not self.log.exists():
            return []
        with self.log.open("rb") as log:
            log.seek(self._read)
            text = log.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        return whole.decode(errors="replace").splitlines()

    def stop(self) -> None:
        """Asks it to finish its epoch; kills its process group if that takes too long."""
        if not self._process or not self.running:
            return
        self._process.terminate()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _last_words(self, code: int | None) -> list[str]:
        """The error it printed, else how it ended."""
        lines = self.log.read_text(errors="replace").splitlines()
        at = max((i for i, line in enumerate(lines) if line.startswith("error: ")), default=None)
        return lines[at:] if at is not None else [f"exit code {code}"]
