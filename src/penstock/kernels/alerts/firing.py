"""Whether a key fires, and what is told of it: from row to row."""

from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.core.time import NEVER

FIRED, RESOLVED = "fired", "resolved"

# What is kept of a Firing, in the order of its fields.
SINCE_TIME, TOLD_TIME, OPEN = "__since_t", "__told_t", "__told"
KEPT: dict[str, pa.DataType] = {SINCE_TIME: pa.int64(), TOLD_TIME: pa.int64(), OPEN: pa.bool_()}


@dataclass(frozen=True)
class Firing:
    """One key. since: NEVER while it does not fire; told: when it was told last that it does; open: it was told of this time."""

    since: int = NEVER
    told: int = NEVER
    open: bool = False

    def after(self, t: int, when: bool, resolve: bool, every: int | None) -> "tuple[Firing, str | None]":
        """What holds behind a row of this time, and what is told of it."""
        if self.since > NEVER and resolve:
            return replace(self, since=NEVER, open=False), RESOLVED if self.open else None
        now = replace(self, since=t) if when and self.since == NEVER else self
        if not when or now.since == NEVER:
            return now, None
        again = not now.open if every is None else now.told == NEVER or t - now.told >= every
        return (replace(now, told=t, open=True), FIRED) if again else (now, None)
