"""Where in the user's program something was written."""

import os
import sys
from types import FrameType

from penstock.plan import Origin

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def origin() -> Origin:
    """The nearest call outside this package: a file below the working directory by its path from there, others by their name."""
    frame = _caller()
    return Origin(_shown(frame.f_code.co_filename), frame.f_lineno)


def directory() -> str:
    """Where the file of the user's program lies; nothing where it is none."""
    file = _caller().f_code.co_filename
    return "" if file.startswith("<") else os.path.dirname(os.path.abspath(file))


def _caller() -> FrameType:
    frame = sys._getframe(1)
    while frame.f_back and _ours(frame):
        frame = frame.f_back
    return frame


def _ours(frame: FrameType) -> bool:
    """Also what dataclasses make for this package, and context managers between two of its functions."""
    file, module = frame.f_code.co_filename, str(frame.f_globals.get("__name__", ""))
    made = file == "<string>" and module.startswith("penstock.")
    return made or module == "contextlib" or os.path.abspath(file).startswith(_PACKAGE)


def _shown(file: str) -> str:
    if file.startswith("<"):
        return file
    full, here = os.path.abspath(file), os.getcwd().rstrip(os.sep) + os.sep
    return full.removeprefix(here) if full.startswith(here) else os.path.basename(full)
