"""Secrets by reference: `env:NAME` or `file:/path`. Only their names are ever stored, shown or sent to other machines."""

import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from penstock.errors import BadInput

_REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]{0,100}|file:/[^\x00-\x1f\x7f:]{1,1000}", re.ASCII)
_HINT = "write env:NAME, a variable of the environment, or file:/path, a file that nobody else can read"
_LONGEST = 64 << 10


def check_reference(name: str, value: str) -> None:
    """Refuses a secret that was written out. The value is not repeated: it may be one."""
    if not _REFERENCE.fullmatch(value):
        raise BadInput(f"{name} must name a secret, not be one", hint=_HINT)


def secret(reference: str, name: str) -> str:
    """What the reference stands for."""
    kind, _, place = reference.partition(":")
    found = os.environ.get(place) if kind == "env" else _file(Path(place), name)
    if not found:
        where = f"the variable {place} is not set" if kind == "env" else f"{place} is empty"
        raise BadInput(f"the secret for {name} is not there: {where}", hint=_HINT)
    return found


def check_private(path: Path, name: str) -> None:
    """Refuses a file that others can read, as ssh does; one of root may be read by its group. A file that is not there is for
    anyone who opens it."""
    with suppress(OSError):
        found = path.stat()
        if found.st_mode & (0o037 if found.st_uid == 0 and os.getuid() != 0 else 0o077):
            raise BadInput(f"{name} is in a file that others can read: {path}", hint=f"chmod 600 {path}")


def _file(path: Path, name: str) -> str:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode) or mode & 0o077:
                raise BadInput(f"the secret for {name} is in a file that others can read: {path}", hint=f"chmod 600 {path}")
            return file.read(_LONGEST).decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as wrong:
        raise BadInput(f"the secret for {name} cannot be read", str(wrong)) from wrong
