"""Where in the user's program something was written."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Origin:
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"
