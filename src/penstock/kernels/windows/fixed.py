"""Which kernel runs a fixed window."""

from collections.abc import Sequence

import pyarrow as pa

from penstock.core.time import micros
from penstock.kernels.windows.final import WindowKernel
from penstock.kernels.windows.panes import PaneKernel
from penstock.plan import Window


def build(window: Window, inputs: Sequence[pa.Schema], output: pa.Schema) -> WindowKernel:
    layout, allowed = window.layout, micros(window.allowed)
    if layout.single and window.late != "correct" and window.emit == "final" and window.early is None:
        return WindowKernel(window.by, layout, window.aggregates, window.late, inputs[0], output)
    early = micros(window.early) if window.early is not None else None
    return PaneKernel(window.by, layout, window.aggregates, window.late, inputs[0], output, allowed, window.emit, early)
