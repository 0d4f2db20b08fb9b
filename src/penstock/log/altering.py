"""What of a topic can change while it lives, and why the rest cannot."""

from dataclasses import fields
from typing import Protocol, runtime_checkable

from penstock.errors import BadInput
from penstock.log.port import Topic, TopicSpec
from penstock.log.settings import check_spec

ALTERABLE = ("partitions", "max_record", "retain", "retain_bytes", "hold", "compact", "tombstones")
_REASONS = {
    "name": "a topic keeps its name",
    "schema": "columns are added with evolve, or topic alter --add-columns",
    "time": "the headers of its frames hold the times of its rows",
    "key": "the keys of the rows that are there would not change with it",
    "partition_by": "the rows that are there would not lie where it says",
    "durability": "what was acknowledged was promised under it",
    "future": "the headers of its frames depend on it",
    "writer": "its rows bring, or do not bring, their time along",
    "changelog": "its rows are changes, or are not",
    "ordered": "its rows stand as they were written",
    "codec": "the records that are there were written with it",
    "events": "its rows have, or have not, a version in their stream",
}


@runtime_checkable
class Alterable(Protocol):
    """A log whose topics can be altered; a broker of its own has its own tools."""

    def alter(self, spec: TopicSpec) -> Topic:
        """Gives a topic these settings. BadInput with the reason where one of them cannot change. Processes that have the topic
        open notice within about a second."""
        ...


def differs(old: TopicSpec, new: TopicSpec) -> bool:
    """Whether the new settings are others; BadInput if a topic cannot come to have them."""
    for name in (field.name for field in fields(TopicSpec)):
        if getattr(old, name) != getattr(new, name) and name not in ALTERABLE:
            word = name.replace("_", " ")
            raise BadInput(f"the {word} of topic {old.name} cannot change: {_REASONS[name]}", hint="make a new topic")
    if new.partitions < old.partitions:
        what = f"topic {old.name} has {old.partitions} partitions and cannot have {new.partitions}: records would be lost"
        raise BadInput(what, hint="make a new topic with fewer partitions")
    if new.partitions > old.partitions and old.writer:
        what = f"topic {old.name} cannot have more partitions: it is written by flow {old.writer}"
        raise BadInput(what, hint="make a new topic, and let a new flow write it")
    if new.partitions > old.partitions and old.events:
        what = f"event store {old.name} cannot have more partitions: its streams would be looked for in others than they lie in"
        raise BadInput(what, hint="make a new store, and append the events of this one to it")
    check_spec(new)
    return old != new
