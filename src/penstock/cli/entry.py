"""The command `penstock` from its first moment on: Ctrl-C ends it without a word, also while modules are still being loaded."""

import os
import signal
import sys

TYPE_CHECKING = False  # nothing is loaded here that is not needed: until `main` is called Ctrl-C still shows where Python is
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

_INTERRUPTED = 130
_LOADING = "<frozen importlib"


def main() -> "NoReturn":
    """The entry point; it loads everything else."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where it is to be ignored, as behind `&` or nohup
        signal.signal(signal.SIGINT, _interrupt)
    try:
        from penstock.cli.main import run
    except KeyboardInterrupt:
        os._exit(_INTERRUPTED)
    code = run()
    if code == _INTERRUPTED:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second one ends what is still being closed
    sys.exit(code)


def _interrupt(number: int, frame: "FrameType | None") -> None:
    """As Python does it; but a module that is stopped half loaded leaves a trace of its own, so there the process ends at once."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(_LOADING):
            try:
                sys.stdout.flush()
            finally:
                os._exit(_INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt
