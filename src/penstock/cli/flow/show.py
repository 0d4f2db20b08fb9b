"""A run on the terminal: one line that is rewritten while it runs, plain lines otherwise; all on standard error."""

import sys
import threading
from types import TracebackType

from penstock.cli.table import length, shortened
from penstock.engine.run.epoch.report import Report
from penstock.engine.run.progress import Tally

_JOINT = " · "


class TerminalShow:
    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.live = sys.stderr.isatty()
        self._line = ""
        self._lock = threading.Lock()  # several flows run side by side

    def __enter__(self) -> "TerminalShow":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._lock:
            self._wipe()

    def say(self, text: str) -> None:
        if not self.quiet:
            self._print(text)

    def progress(self, tally: Tally, report: Report) -> None:
        if self.quiet:
            return
        if not self.live:
            if tally.epochs == 1 or report.behind:
                self._print(tally.progress(report))
            return
        self._rewrite(tally.progress(report))

    def wait(self, text: str) -> None:
        """What is waited for: on the line that is rewritten; elsewhere it was said when the wait began."""
        if self.live and not self.quiet:
            self._rewrite(text)

    def _rewrite(self, text: str) -> None:
        with self._lock:
            self._wipe()
            self._line = fit(text)
            print(self._line, end="", file=sys.stderr, flush=True)

    def close(self, tally: Tally) -> None:
        self._print(f"{tally.driver.plan.flow}: {tally.closing()}")

    def _print(self, text: str) -> None:
        with self._lock:
            self._wipe()
            print(text, file=sys.stderr, flush=True)

    def _wipe(self) -> None:
        if self._line:
            print("\r\x1b[2K", end="", file=sys.stderr)
            self._line = ""


def fit(text: str) -> str:
    """As many parts of the line as fit; what is left out is never the half of a number."""
    import shutil

    width = shutil.get_terminal_size((120, 24)).columns - 1  # in the last column a terminal would begin a new line
    if length(text) <= width:
        return text
    parts = text.split(_JOINT)
    while len(parts) > 1 and length(_JOINT.join([*parts, "…"])) > width:
        parts.pop()
    return shortened(_JOINT.join([*parts, "…"]), width)
