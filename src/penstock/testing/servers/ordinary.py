"""Servers that are not run as root: where root runs the tests, they run as nobody, with data that are nobody's."""

import os
import pwd
import shutil
import tempfile
import threading
import weakref
from pathlib import Path

from penstock.testing.servers.jars import NotToBeHad

NOBODY = "nobody"


def place_for(server: object, place: Path, name: str) -> Path:
    """Where its data lie. For root, whose directories nobody else may enter, in a temporary directory that goes with the server, or
    with this process."""
    if os.geteuid() != 0:
        return place
    own = Path(tempfile.mkdtemp(prefix=f"penstock-{name}-"))
    give_away(own)
    weakref.finalize(server, shutil.rmtree, own, ignore_errors=True)
    return own


def give_away(place: Path) -> None:
    """To the user who may run it, if that is somebody else."""
    if os.geteuid() == 0:
        user = pwd.getpwnam(NOBODY)
        for path in [place, *place.rglob("*")]:
            os.chown(path, user.pw_uid, user.pw_gid)


def while_this_lives(signal: str) -> list[str]:
    """Whoever becomes another user forgets what it was told about the death of its parent, so it is said again."""
    return ["--pdeathsig", signal] if threading.current_thread() is threading.main_thread() else []


def not_as_root(called: str, *more: str) -> list[str]:
    """What stands before a command, so that it does not run as root."""
    if os.geteuid() != 0:
        return []
    if not shutil.which("setpriv"):
        raise NotToBeHad(f"{called} does not run as root, and there is no setpriv here to start it as another user")
    group = str(pwd.getpwnam(NOBODY).pw_gid)
    return ["setpriv", "--reuid", NOBODY, "--regid", group, "--clear-groups", *more]
