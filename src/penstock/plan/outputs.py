"""Where rows go."""

from dataclasses import dataclass
from typing import Literal

from penstock.plan.origin import Origin


@dataclass(frozen=True)
class Output:
    kind: Literal["topic", "view"]
    name: str
    input: str
    key: tuple[str, ...]  # view: the columns that name a row, () = its position; topic: the columns of the record's key
    partitions: int
    origin: Origin

    @property
    def id(self) -> str:
        """What it is called in decisions and files."""
        return f"{self.kind}.{self.name}"
