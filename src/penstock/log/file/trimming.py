"""The rest of a frame whose first rows a reader has already: its file was rewritten while it was read."""

from dataclasses import replace

import numpy as np

from penstock.core.columns import BEFORE
from penstock.core.time import NEVER, micros
from penstock.log.intake.codec import event_times
from penstock.log.port import Chunk, TopicSpec


def behind(spec: TopicSpec, chunk: Chunk, after: int) -> Chunk:
    """The rows from offset `after` on, under a header that is true for them."""
    frame, offsets = chunk.frame, chunk.offsets
    first = int(np.searchsorted(offsets, after))
    if first == 0:
        return chunk
    count = len(offsets) - first
    base = int(offsets[first]) if count else frame.end
    known = _time_before(spec, chunk, first)
    rest = replace(frame, base=base, count=count, gap=frame.end - base - count, time_before=known)
    return Chunk(rest, chunk.rows.slice(first))


def _time_before(spec: TopicSpec, chunk: Chunk, row: int) -> int:
    """The greatest plausible event time before a row of a frame."""
    frame, names = chunk.frame, chunk.rows.schema.names
    if spec.schema and spec.time and spec.time not in names:
        return frame.time_before  # times were not asked for
    if BEFORE in names and row < chunk.rows.num_rows:
        return int(chunk.rows.column(BEFORE)[row].as_py())
    times, appended = event_times(chunk.rows, spec, chunk.appended)[:row], chunk.appended[:row]
    seen = times if spec.writer else times[times <= appended + micros(spec.future)]
    return max(frame.time_before, int(seen.max()) if len(seen) else NEVER)
