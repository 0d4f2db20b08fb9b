"""Penstock: stream processing on Spark, in Python. The log is the truth; everything else is a view, kept current exactly once."""

TYPE_CHECKING = False  # as in typing, which takes a while to load: the command line is not to be interrupted before it can say so

__version__ = "0.1.0"

# Loaded when first asked for, so that `import penstock` is quick and needs no JVM.
_NAMES = {
    "Behind": "penstock.log.backpressure",
    "Binding": "penstock.queue.port",
    "Calendar": "penstock.flow.steps.kinds",
    "Count": "penstock.flow.steps.kinds",
    "Flow": "penstock.door",
    "FlowTest": "penstock.testing.driver",
    "GroupConsumer": "penstock.log.groups.consumer",
    "GroupSettings": "penstock.log.groups.consumer",
    "Hopping": "penstock.flow.steps.kinds",
    "IdempotentWriter": "penstock.log.groups.once",
    "Limit": "penstock.queue.port",
    "Message": "penstock.queue.port",
    "PenstockError": "penstock.errors",
    "Position": "penstock.core.position",
    "Producer": "penstock.log.producer",
    "Queue": "penstock.queue.queue",
    "QueueSpec": "penstock.queue.port",
    "Reject": "penstock.queue.message",
    "Schema": "penstock.core.schema",
    "SearchIndex": "penstock.views.search",
    "Session": "penstock.flow.steps.kinds",
    "Sliding": "penstock.flow.steps.kinds",
    "TopicSpec": "penstock.log.port",
    "Tumbling": "penstock.flow.steps.kinds",
    "View": "penstock.views.view",
    "agg": "penstock.flow.steps.aggregates",
    "database": "penstock.flow.steps.lookups",
    "open_log": "penstock.log.open",
    "read_together": "penstock.views.together",
}

if TYPE_CHECKING:
    from typing import Any

    from penstock.core.position import Position
    from penstock.core.schema import Schema
    from penstock.door import Flow
    from penstock.errors import PenstockError
    from penstock.flow.steps.aggregates import agg
    from penstock.flow.steps.kinds import Calendar, Count, Hopping, Session, Sliding, Tumbling
    from penstock.flow.steps.lookups import database
    from penstock.log.backpressure import Behind
    from penstock.log.groups.consumer import GroupConsumer, GroupSettings
    from penstock.log.groups.once import IdempotentWriter
    from penstock.log.open import open_log
    from penstock.log.port import TopicSpec
    from penstock.log.producer import Producer
    from penstock.queue.message import Reject
    from penstock.queue.port import Binding, Limit, Message, QueueSpec
    from penstock.queue.queue import Queue
    from penstock.testing.driver import FlowTest
    from penstock.views.search import SearchIndex
    from penstock.views.together import read_together
    from penstock.views.view import View

__all__ = [
    "Behind",
    "Binding",
    "Calendar",
    "Count",
    "Flow",
    "FlowTest",
    "GroupConsumer",
    "GroupSettings",
    "Hopping",
    "IdempotentWriter",
    "Limit",
    "Message",
    "PenstockError",
    "Position",
    "Producer",
    "Queue",
    "QueueSpec",
    "Reject",
    "Schema",
    "SearchIndex",
    "Session",
    "Sliding",
    "TopicSpec",
    "Tumbling",
    "View",
    "agg",
    "database",
    "open_log",
    "read_together",
]


def __getattr__(name: str) -> "Any":
    if name not in _NAMES:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_NAMES[name]), name)
