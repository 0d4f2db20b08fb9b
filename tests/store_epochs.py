"""Epochs given to the sink of a store, as the engine gives them."""

import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.core.change import Op
from penstock.core.columns import OP, POSITION, TIME
from penstock.core.position import Position
from penstock.core.schema import Schema
from penstock.sinks.port import Delivery, Marker, Sink, SinkContext, SinkSpec, nothing
from penstock.storage.memory import MemoryStorage
from penstock.testing.contracts.sink import ipc_file

Row = Mapping[str, Any]
Build = Callable[[SinkContext], Sink]


def spec_of(name: str, ddl: str, *key: str, updating: bool = False) -> SinkSpec:
    return SinkSpec("contract", name, Schema.of(ddl), key, updating)


class Epochs:
    """Opens the sink and delivers behind the last epoch that it has. The n-th row ever given has time and offset n. refused: rows
    that became dead letters, with their reasons. Closed when nobody holds it any more."""

    def __init__(
        self, build: Build, spec: SinkSpec, generation: int = 1, views: Path = Path(), fail: Callable[[str], None] = nothing
    ) -> None:
        self.spec, self.generation, self.storage, self.given = spec, generation, MemoryStorage(), 0
        self.refused = refused = list[Row]()
        context = SinkContext(spec, None, self.storage, views, fail, lambda _, rows: refused.extend(rows.to_pylist()))  # type: ignore[arg-type]
        self.sink = build(context)
        weakref.finalize(self, self.sink.close)
        self.last = self.sink.open("life", generation)

    def give(self, *rows: Row, ops: Sequence[Op] = ()) -> None:
        """The next epoch."""
        self.give_table(pa.Table.from_pylist([dict(row) for row in rows], schema=self.spec.schema.arrow), ops)

    def give_table(self, rows: pa.Table, ops: Sequence[Op] = ()) -> None:
        times = range(self.given, self.given + rows.num_rows)
        self.given += rows.num_rows
        rows = rows.append_column(TIME, pa.array(times, pa.int64()))
        rows = rows.append_column(POSITION, pa.array([Position("in", 0, at).encode() for at in times], pa.binary()))
        if self.spec.updating:
            rows = rows.append_column(OP, pa.array([int(op) for op in ops or [Op.INSERT] * rows.num_rows], pa.int8()))
        epoch = self.last + 1
        self.storage.publish(f"{epoch}.arrow", ipc_file(rows))
        self.deliver(epoch)

    def deliver(self, epoch: int) -> None:
        self.sink.deliver(Delivery(Marker("life", self.generation, epoch), [f"{epoch}.arrow"], frontier=epoch))
        self.last = epoch
