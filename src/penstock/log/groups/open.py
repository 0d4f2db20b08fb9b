"""The groups of a log."""

from pathlib import Path

from penstock.errors import BadInput
from penstock.log.file import FileLog
from penstock.log.groups.port import Groups
from penstock.log.groups.sqlite import SqliteGroups
from penstock.log.memory import MemoryLog
from penstock.log.port import Log
from penstock.storage.local import LocalStorage

FILE = "groups.db"


def groups_of(log: Log) -> Groups:
    """Where the readers of this log keep how far they have come: beside its records, and as durable."""
    if isinstance(log, MemoryLog):
        return log.groups
    if isinstance(log, FileLog) and isinstance(log.storage, LocalStorage):
        return SqliteGroups(Path(log.storage.root) / FILE, log.clock)
    from penstock.log.kafka.groups import KafkaGroups
    from penstock.log.kafka.log import KafkaLog

    if isinstance(log, KafkaLog):
        return KafkaGroups(log.settings, log.clock)
    raise BadInput(f"{type(log).__name__} has no place for groups", hint="read it with penstock.log.consumer.read")
