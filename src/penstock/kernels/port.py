"""What a kernel is: a pure step over (state, rows, frontiers).

A keyed step runs in two halves. `prepare` sees rows where they are (no state, any slice of the input): it judges them, takes out
the late ones and may aggregate, so that little has to travel. Its rows carry HASH and go to the bucket of that hash. `step` sees
one bucket: its state, what came for it, and the frontier of each input port.

Tables between steps have the columns of the step's schema and TIME, WATERMARK, POSITION (core.change) where they are asked for.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import pyarrow as pa

from penstock.core.time import NEVER

Fates = Counter[str]  # "on time", "diverted", "ignored", "filtered", "passed", "dead", "implausible", …


def crossed(clock: tuple[int, int], every: int) -> bool:
    """Whether a multiple of `every` lies between two moments."""
    return clock[0] // every != clock[1] // every


@dataclass(frozen=True)
class State:
    """The state of one step in one bucket: named tables, each in slots, each slot a list of runs sorted by HASH, oldest first.

    A slot is whatever the kernel can drop as a whole (a window, a stretch of time). Runs are opened when asked for."""

    runs_of: Mapping[str, Mapping[int, Sequence[Callable[[], pa.Table]]]] = field(default_factory=dict)
    frontiers: tuple[int, ...] = ()  # what the ports' frontiers were in the epoch before; () at the start
    clock: tuple[int, int] = (0, 0)  # when the epoch before and this one were opened, for what is shown early and promised nowhere
    answered: int = NEVER  # the mark that this step's answers left on its table: newest answered time of the epochs before + 1

    def ticked(self, every: int) -> bool:
        """Whether it is time again for what is shown every so often."""
        return crossed(self.clock, every)

    def before(self, port: int = 0) -> int:
        """What a port's frontier was in the epoch before."""
        return self.frontiers[port] if self.frontiers else NEVER

    def slots(self, table: str) -> list[int]:
        return sorted(self.runs_of.get(table, {}))

    def runs(self, table: str, slot: int) -> list[pa.Table]:
        return [run() for run in self.runs_of.get(table, {}).get(slot, ())]


@dataclass
class Changes:
    """How a step changes its state: runs to add, then slots to drop. Sorted by HASH."""

    add: dict[tuple[str, int], pa.Table] = field(default_factory=dict)
    drop: set[tuple[str, int]] = field(default_factory=set)


@dataclass
class Prepared:
    rows: pa.Table  # with HASH
    late: pa.Table | None = None  # diverted rows, as they came in
    fates: Fates = field(default_factory=Counter)


@dataclass
class Stepped:
    rows: pa.Table  # the step's schema + TIME, WATERMARK, POSITION
    changes: Changes
    fates: Fates = field(default_factory=Counter)
    more: Iterable[pa.Table] = ()  # rows too many to be held at once: made while they are taken, which happens once
    answered: int = NEVER  # the newest time of a row that was answered, + 1; NEVER where none was
    failed: pa.Table | None = (
        None  # rows that it would have given, but for an aggregate that failed: see kernels/aggregates/unanswered.py
    )


class Kernel(Protocol):
    """A keyed step. Everything it needs to know of the flow is given when it is made."""

    gives_position: bool  # set to False where nobody behind it reads POSITION: it may leave it out, which spares joins much

    @property
    def needs_position(self) -> bool | Literal["late"] | tuple[bool, ...]:
        """Which of the rows given to `prepare` must carry POSITION: all, none, or those with t < W. A tuple says it by port."""
        ...

    def prepare(self, port: int, rows: pa.Table) -> Prepared: ...

    def step(self, state: State, rows: Sequence[pa.Table | None], frontiers: Sequence[int]) -> Stepped:
        """rows: per port what `prepare` made for this bucket, in any order and any number of pieces put together."""
        ...

    def merge(self, table: str, runs: Sequence[pa.Table]) -> pa.Table:
        """Several runs of one slot (oldest first) as one that means the same."""
        ...

    def frontier(self, frontiers: Sequence[int]) -> int:
        """F out, a function of F in alone."""
        ...

    def open_rows(self, state: State) -> pa.Table | None:
        """What the step would say if it had to answer now: rows not yet complete (`view show --open`); None if it has none."""
        ...


def keeps_order(kernel: Kernel) -> bool:
    """Whether its rows are those of its first input, which leave in the epoch in which they came: they bring ADDRESS along."""
    return bool(getattr(kernel, "keeps_order", False))


def position_needed(kernel: Kernel, port: int) -> bool | Literal["late"]:
    """Which of the rows of one port must carry POSITION."""
    needed = kernel.needs_position
    return needed[port] if isinstance(needed, tuple) else needed
