"""Lines of standard error that are rewritten in place while something goes on."""

import sys
import threading
from collections.abc import Sequence

from penstock.cli.flow.show import fit
from penstock.cli.main import printable

BAR = 20  # characters of a bar


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


def bar(done: int, total: int) -> str:
    """How much of a known total is done; nothing where it is not known."""
    if not total:
        return ""
    share = min(1.0, done / total)
    full = int(share * BAR)
    return f"▕{'█' * full}{' ' * (BAR - full)}▏ {share:.0%}"
