"""What is asked of a run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Literal

Mode = Literal["run", "catch_up", "drain"]


@dataclass(frozen=True)
class RunOptions:
    """As `penstock run` and `flow.run()` take them."""

    mode: Mode = "run"
    every: str | timedelta | None = None
    home: str | Path | None = None
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    max_rows: int | None = None
    buckets: int | None = None
    accept_gap: bool = False
    log: str | None = None  # its URL; None: as the flows say, else as PENSTOCK_LOG says, else the one in the home
