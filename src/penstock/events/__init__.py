"""Event sourcing: the log as the system of record. State is what replaying the events of a stream gives."""

from penstock.errors import VersionConflict
from penstock.events.aggregate import Aggregate, fold
from penstock.events.event import Changes, Recorded, Written
from penstock.events.expected import ANY, EXISTS, NEW, Expected
from penstock.events.process import Commands, ProcessManager
from penstock.events.projecting import stream_of
from penstock.events.snapshots import Snapshots
from penstock.events.store import EventStore
from penstock.events.upcasting import Form, Upcaster

__all__ = [
    "ANY",
    "EXISTS",
    "NEW",
    "Aggregate",
    "Changes",
    "Commands",
    "EventStore",
    "Expected",
    "Form",
    "ProcessManager",
    "Recorded",
    "Snapshots",
    "Upcaster",
    "VersionConflict",
    "Written",
    "fold",
    "stream_of",
]
