"""Opens queues: those of the home's log, those of this process, or those behind a URL."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Protocol, runtime_checkable

from penstock.core.schemes import Schemes
from penstock.errors import BadInput
from penstock.log.file.log import FileLog
from penstock.log.open import VARIABLE as LOG
from penstock.log.open import open_log
from penstock.queue.memory import MemoryQueues
from penstock.queue.on_log.queues import LogQueues
from penstock.queue.port import QueuesPort

VARIABLE = "PENSTOCK_QUEUES"
MEMORY = "memory:"
Opener = Callable[[str], QueuesPort]


def _of_this_process() -> Opener:
    return lambda url: _memory()


def _rabbitmq() -> Opener:
    from penstock.queue.rabbitmq.queues import RabbitQueues

    return RabbitQueues


SCHEMES = Schemes[Opener]("queues", "penstock.queues", hint="write memory: or amqp://host, or leave it out for the embedded log")
SCHEMES.add("memory", _of_this_process)
SCHEMES.add("amqp", _rabbitmq)
SCHEMES.add("amqps", _rabbitmq)


@runtime_checkable
class Closing(Protocol):
    """Queues with a connection behind them."""

    def close(self) -> None: ...


def open_queues(at: str | None = None, home: Path | None = None) -> QueuesPort:
    """The queues there: `memory:` (those of this process, gone with it), `amqp://host` (those of a RabbitMQ), else at what
    PENSTOCK_QUEUES says, else those of the embedded log in this home (None: the one that the working directory leads to)."""
    at = at or os.environ.get(VARIABLE)
    return SCHEMES.find(at)(at) if at else _on_log(home)


def _on_log(home: Path | None) -> QueuesPort:
    log = open_log(home)
    if not isinstance(log, FileLog):
        raise BadInput(
            f"{LOG} names a log that holds no queues: they need the embedded one",
            hint=f"name other queues, at=memory: or amqp://host (also {VARIABLE}), or unset {LOG}",
        )
    return LogQueues(log, log.groups())


@cache
def _memory() -> MemoryQueues:
    """One for the whole process, so that all of it sees the same queues."""
    return MemoryQueues()
