"""A flow has one driver at a time: its lock, and who holds it."""

import os
import socket
from contextlib import AbstractContextManager
from typing import Any

from penstock.core.time import SystemClock, moment
from penstock.engine.run.epoch.decision import Decisions
from penstock.errors import Held
from penstock.log.port import Log


def log_address(log: Log) -> str:
    """A log in words; "" for the one of the home."""
    return str(getattr(log, "settings", ""))


def this_process() -> dict[str, Any]:
    """This process, for whoever wants the same flow."""
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": moment(SystemClock().now()).strftime("%Y-%m-%dT%H:%M:%SZ")}


def held_lock(decisions: Decisions) -> AbstractContextManager[bool]:
    """The flow's lock, held; raises Held, with who has it, if that is somebody else."""
    lock = decisions.storage.lock("lock", wait=False)
    if not lock.__enter__():
        owner = decisions.owner()
        raise Held(
            f"flow {decisions.flow} is already running",
            f"held by process {owner.get('pid')} on {owner.get('host')} since {owner.get('since')}",
            hint="stop it first; a flow has one driver at a time",
        )
    return lock
