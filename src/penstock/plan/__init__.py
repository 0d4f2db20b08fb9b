"""The plan of a flow: the steps it is lowered to, each answering for itself what others must know of it."""

from penstock.plan.alerts import Alert, AlertTable, Told
from penstock.plan.joins import Join, Matched, Pairs, StreamJoin
from penstock.plan.layouts import Calendar, Layout, Spaced
from penstock.plan.node import Emit, Facts, How, Judging, Late, Meaning, Node, OnError, Sides
from penstock.plan.origin import Origin
from penstock.plan.outputs import Output, SinkDefinition
from penstock.plan.remote import Answers, Asked, Questions, Remote
from penstock.plan.rows import Asking, Hidden, LateRows, Lookup, MapArrow, Select, Union, Where
from penstock.plan.sources import ClockFix, Source, Static, Versions
from penstock.plan.steps import DEAD_LIMIT, Plan, Step
from penstock.plan.tables import Enrich, Grouping, Latest, TableJoin
from penstock.plan.windows import Aggregate, Aggregating, Count, Last, Running, Session, Sliding, Window

__all__ = [
    "DEAD_LIMIT",
    "Aggregate",
    "Aggregating",
    "Alert",
    "AlertTable",
    "Answers",
    "Asked",
    "Asking",
    "Calendar",
    "ClockFix",
    "Count",
    "Emit",
    "Enrich",
    "Facts",
    "Grouping",
    "Hidden",
    "How",
    "Join",
    "Judging",
    "Last",
    "Late",
    "LateRows",
    "Latest",
    "Layout",
    "Lookup",
    "MapArrow",
    "Matched",
    "Meaning",
    "Node",
    "OnError",
    "Origin",
    "Output",
    "Pairs",
    "Plan",
    "Questions",
    "Remote",
    "Running",
    "Select",
    "Session",
    "Sides",
    "SinkDefinition",
    "Sliding",
    "Source",
    "Spaced",
    "Static",
    "Step",
    "StreamJoin",
    "TableJoin",
    "Told",
    "Union",
    "Versions",
    "Where",
    "Window",
]
