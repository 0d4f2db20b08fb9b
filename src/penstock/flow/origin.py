"""Where in the user's program something was written."""

import os
import sys

from penstock.flow.plan import Origin

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def origin() -> Origin:
    """The nearest call outside this package: a file below the working directory by its path from there, others by their name."""
    frame = sys._getframe(1)
    while frame.f_back and os.path.abspath(frame.f_code.co_filename).startswith(_PACKAGE):
        frame = frame.f_back
    return Origin(_shown(frame.f_code.co_filename), frame.f_lineno)


def _shown(file: str) -> str:
    if file.startswith("<"):
        return file
    full, here = os.path.abspath(file), os.getcwd().rstrip(os.sep) + os.sep
    return full.removeprefix(here) if full.startswith(here) else os.path.basename(full)
