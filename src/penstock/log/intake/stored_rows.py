"""The columns of a stored batch: those of the topic, and the system columns behind them."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.arrow import filled
from penstock.core.change import Op
from penstock.core.columns import APPENDED, BEFORE, EVENT_TIME, HEADERS, KEY, OFFSET, OP, POSITION, VALUE, WATERMARK
from penstock.core.schema import TIMESTAMP, Schema

# Their order is their order in a stored batch and that of the bits in a frame's header.
SYSTEM = (
    pa.field(KEY, pa.binary()),
    pa.field(HEADERS, pa.map_(pa.string(), pa.binary())),
    pa.field(EVENT_TIME, TIMESTAMP),
    pa.field(POSITION, pa.binary()),
    pa.field(WATERMARK, pa.int64()),
    pa.field(OP, pa.int8()),
    pa.field(OFFSET, pa.int64()),
    pa.field(APPENDED, pa.int64()),
    pa.field(BEFORE, pa.int64()),
)
LEFT_OUT_IF_NULL = (KEY, HEADERS, OP)
_RAW = pa.schema([pa.field(VALUE, pa.binary())])
_DELETES = 1 << [f.name for f in SYSTEM].index(OP)

Mask = npt.NDArray[np.bool_]


def physical(schema: Schema | None, system: int = 0) -> pa.Schema:
    """The columns of a stored batch. Where it has deletes any column may be null: they hold the key, and often nothing else."""
    fields = list(schema.arrow if schema else _RAW)
    if system & _DELETES:
        fields = [f.with_nullable(True) for f in fields]
    return pa.schema(fields + [f for bit, f in enumerate(SYSTEM) if system >> bit & 1])


def deletes_of(rows: pa.RecordBatch | pa.Table, raw: bool) -> Mask | None:
    """Which stored rows are deletes; None where none is."""
    if raw:
        values = rows.column(VALUE)
        return np.asarray(values.is_null().to_numpy(zero_copy_only=False)) if values.null_count else None
    if OP not in rows.schema.names:
        return None
    gone = filled(pc.equal(rows.column(OP), pa.scalar(int(Op.DELETE))), False)
    return np.asarray(gone.to_numpy(zero_copy_only=False)) if pc.any(gone).as_py() else None
