"""Where in the user's program something was written."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from penstock.errors import BadInput

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


@dataclass(frozen=True)
class Origin:
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


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


@contextmanager
def located(where: object) -> Iterator[None]:
    """Errors about a value the user gave say where it was given."""
    try:
        yield
    except BadInput as error:
        if str(where) in error.detail:
            raise
        raise type(error)(error.what, str(where), *error.detail, hint=error.hint) from error.__cause__
