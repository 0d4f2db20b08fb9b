"""Which kernel runs a fixed window."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal, Protocol

import pyarrow as pa

from penstock.core.time import micros
from penstock.kernels.aggregates import Aggregate
from penstock.kernels.layouts import Calendar, Layout, Spaced
from penstock.kernels.panes import PaneKernel
from penstock.kernels.windows import Late, WindowKernel


class Definition(Protocol):
    """What a flow says of a fixed window."""

    @property
    def by(self) -> Sequence[str]: ...
    @property
    def layout(self) -> Any: ...  # size, every, offset; or unit, zone
    @property
    def aggregates(self) -> Sequence[Aggregate]: ...
    @property
    def late(self) -> Late: ...
    @property
    def allowed(self) -> timedelta: ...
    @property
    def emit(self) -> Literal["final", "updates"]: ...
    @property
    def early(self) -> timedelta | None: ...


def build(window: Definition, inputs: Sequence[pa.Schema], output: pa.Schema) -> WindowKernel:
    layout, allowed = layout_of(window.layout), micros(window.allowed)
    if layout.single and window.late != "correct" and window.emit == "final" and window.early is None:
        return WindowKernel(window.by, layout, window.aggregates, window.late, inputs[0], output)
    early = micros(window.early) if window.early is not None else None
    return PaneKernel(window.by, layout, window.aggregates, window.late, inputs[0], output, allowed, window.emit, early)


def layout_of(given: Any) -> Layout:
    """Spaced or calendar windows, as a plan describes them."""
    if hasattr(given, "zone"):
        return Calendar(given.unit, given.zone)
    return Spaced(micros(given.size), micros(given.every), micros(given.offset))
