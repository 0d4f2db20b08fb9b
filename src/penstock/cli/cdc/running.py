"""penstock cdc run: captures in the foreground, until Ctrl-C or until they have caught up."""

import sys
import threading
import time
from collections.abc import Sequence

from penstock.capture.registry import Captures
from penstock.cli.cdc.hosting import Host, Hosted, names_once
from penstock.cli.cdc.telling import Telling
from penstock.cli.flow.show import fit
from penstock.cli.main import printable
from penstock.cli.topic.produce import INTERRUPTED, Interrupt
from penstock.log.open import open_log


class Lines:
    """Standard error: a few lines that are rewritten in place below those that stay."""

    def __init__(self, quiet: bool = False) -> None:
        self.live = sys.stderr.isatty() and not quiet
        self._quiet, self._shown, self._lock = quiet, 0, threading.Lock()

    def say(self, text: str) -> None:
        if not self._quiet:
            self.close_with(text)

    def close_with(self, text: str) -> None:
        """Said whether or not anybody wants to look."""
        with self._lock:
            self._wipe()
            print(printable(text), file=sys.stderr, flush=True)

    def rewrite(self, lines: Sequence[str]) -> None:
        with self._lock:
            self._wipe()
            print("\n".join(fit(printable(line)) for line in lines), end="", file=sys.stderr, flush=True)
            self._shown = len(lines)

    def wipe(self) -> None:
        with self._lock:
            self._wipe()

    def _wipe(self) -> None:
        if self._shown:
            print("\r\x1b[2K" + "\x1b[A\x1b[2K" * (self._shown - 1), end="", file=sys.stderr, flush=True)
        self._shown = 0


def run_captures(names: Sequence[str], catch_up: bool, quiet: bool, limit: int) -> int:
    """Runs them; the exit code."""
    lines, captures = Lines(quiet), Captures()
    definitions = [captures.get(name) for name in names_once(names)]
    telling = Telling(definitions, lines.say, lines.rewrite if lines.live else None)
    host = Host(names, open_log(), telling.report, limit)
    with Interrupt(host.stop) as interrupt:
        try:
            host.start(catch_up)
            host.join()
        finally:
            lines.wipe()
            for each in host.hosted:
                _close(each, telling, lines, catch_up and not interrupt.asked)
    return INTERRUPTED if interrupt.asked and catch_up else 0


def _close(hosted: Hosted, telling: Telling, lines: Lines, caught_up: bool) -> None:
    how = "failed" if hosted.failure else "caught up" if caught_up else "stopped"
    seconds = (hosted.ended or time.monotonic()) - hosted.began
    lines.close_with(telling.closing(hosted.definition, hosted.run.progress, seconds, how))
