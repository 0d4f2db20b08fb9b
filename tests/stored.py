"""Rows of any schema, staged for a store's sink, for tests of one store."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.core.change import Op
from penstock.core.columns import OP, POSITION, TIME, WATERMARK
from penstock.core.position import source_positions
from penstock.core.schema import Schema
from penstock.core.time import NEVER
from penstock.plan.outputs import SinkDefinition
from penstock.sinks.port import Delivery, Marker, Sink, SinkContext, SinkSpec, nothing
from penstock.storage.memory import MemoryStorage
from penstock.testing.contracts.sink import ipc_file

LIFE = "life"
Row = Mapping[str, Any]
# One column of each type, and values that are easily lost on the way.
EVERY_TYPE = (
    "id long not null, flag boolean, tiny tinyint, small smallint, n int, price decimal(12, 3), real float, x double, text string, "
    "raw binary, day date, at timestamp, tags array<string>, place struct<lat: double, lon: double>"
)


class Staged:
    """A store's sink, and a flow's staged rows for it, epoch by epoch."""

    def __init__(self, definition: SinkDefinition, schema: str, key: Sequence[str] = ("id",), updating: bool = False) -> None:
        self.definition, self.schema, self.storage = definition, Schema.of(schema), MemoryStorage()
        self.spec = SinkSpec("shop", "results", self.schema, tuple(key), updating)
        self.refused: list[tuple[int, list[dict[str, Any]]]] = []
        self.epoch = -1

    def sink(self, generation: int = 1, fail: Callable[[str], None] = nothing) -> Sink:
        """Open, and at the epoch that it has."""
        made = self.definition.build(self.context(fail))
        self.epoch = made.open(LIFE, generation)
        return made

    def context(self, fail: Callable[[str], None] = nothing) -> SinkContext:
        return SinkContext(self.spec, None, self.storage, Path(), fail, self._refuse)  # type: ignore[arg-type]

    def _refuse(self, marker: Marker, rows: pa.Table) -> None:
        self.refused.append((marker.epoch, rows.to_pylist()))

    def epoch_of(self, *rows: Row, gone: Sequence[Row] = (), generation: int = 1) -> Delivery:
        """The next epoch, which puts rows in and takes others out."""
        self.epoch += 1
        everything = [*rows, *gone]
        table = pa.Table.from_pylist([dict(row) for row in everything], schema=self.schema.arrow)
        numbers = pa.array(range(len(everything)), pa.int64())
        table = table.append_column(TIME, numbers).append_column(WATERMARK, pa.array([NEVER] * len(everything), pa.int64()))
        table = table.append_column(POSITION, source_positions("in", 0, numbers.to_numpy() + 1_000 * self.epoch))
        if self.spec.updating:
            ops = [int(Op.INSERT)] * len(rows) + [int(Op.DELETE)] * len(gone)
            table = table.append_column(OP, pa.array(ops, pa.int8()))
        self.storage.publish(f"{self.epoch}/0.arrow", ipc_file(table))
        return Delivery(Marker(LIFE, generation, self.epoch), [f"{self.epoch}/0.arrow"], frontier=self.epoch)
