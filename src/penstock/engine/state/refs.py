"""Names of files that an epoch has written: what a decision points to."""

from typing import NamedTuple


class RunRef(NamedTuple):
    """One run of state: a batch of an Arrow file."""

    step: str
    bucket: int
    table: str
    slot: int
    level: int
    file: str
    batch: int
    rows: int


class StagedRef(NamedTuple):
    """Rows of one epoch for one sink."""

    sink: str
    file: str
    rows: int
    size: int
