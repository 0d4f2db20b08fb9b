"""Which kernel runs which step. A step of the flow names its family; the family makes the kernel from the step's definition."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from penstock.errors import AlreadyThere
from penstock.kernels.alerts import rows as alerts
from penstock.kernels.alerts import tables as alert_tables
from penstock.kernels.alerts import told
from penstock.kernels.asof import enrich
from penstock.kernels.joins import interval as joins
from penstock.kernels.joins import matched
from penstock.kernels.port import Kernel
from penstock.kernels.tables import grouping, latest
from penstock.kernels.tables import joins as table_joins
from penstock.kernels.windows import counts, fixed, last, running, sessions, sliding
from penstock.plan import Node

Build = Callable[[Any, Sequence[pa.Schema], pa.Schema], Kernel]  # the node, the schemas of its inputs, the schema it gives
_FAMILIES: dict[str, Build] = {
    "window": fixed.build,
    "session": sessions.build,
    "running": running.build,
    "grouping": grouping.build,
    "sliding": sliding.build,
    "count": counts.build,
    "last": last.build,
    "alert": alerts.build,
    "alert-table": alert_tables.build,
    "told": told.build,
    "latest": latest.build,
    "join": joins.build,
    "matched": matched.build,
    "table-join": table_joins.build,
    "enrich": enrich.build,
}


def register(family: str, build: Build) -> None:
    """Runs steps of this family with what `build` gives. Called as a module is loaded, in the driver and in its tasks."""
    if _FAMILIES.setdefault(family, build) is not build:
        raise AlreadyThere(f"family {family!r} of kernels is taken", hint="choose another name")


def kernel_of(node: Node, inputs: Sequence[pa.Schema], output: pa.Schema) -> Kernel:
    """The kernel of a keyed step: what it does, the schemas of its inputs, the schema it gives."""
    assert node.family
    return _FAMILIES[node.family](node, inputs, output)
