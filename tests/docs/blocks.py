"""The fenced blocks of a document, and what is done with each kind (see docs/testing.md)."""

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    line: int
    language: str
    words: tuple[str, ...]
    body: str

    @property
    def runs(self) -> bool:
        return "run" in self.words

    @property
    def needs_spark(self) -> bool:
        return "spark" in self.words

    @property
    def needs_postgres(self) -> bool:
        return "postgres" in self.words

    @property
    def needs_mariadb(self) -> bool:
        return "mariadb" in self.words

    def value(self, name: str) -> str | None:
        return next((word.partition("=")[2] for word in self.words if word.startswith(f"{name}=")), None)


@dataclass(frozen=True)
class Command:
    """A line after `$ ` in a console block, and the output shown for it."""

    text: str
    shown: tuple[str, ...]


def documents() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def blocks(text: str) -> list[Block]:
    found = []
    for match in _FENCE.finditer(text):
        language, *words = match["info"].split() or [""]
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(line, language, tuple(words), textwrap.dedent(match["body"])))
    return found


def commands(block: Block) -> list[Command]:
    found: list[Command] = []
    for line in block.body.splitlines():
        if line.startswith("$ "):
            found.append(Command(line[2:], ()))
        elif found:
            found[-1] = Command(found[-1].text, (*found[-1].shown, line))
    return found


def matches(shown: tuple[str, ...], printed: str) -> bool:
    """Whether the output is what the document shows; … stands for anything, alone on a line for any lines."""
    lines = [".*" if line == "…" else ".*".join(map(re.escape, line.split("…"))).replace(".*", "[^\n]*") for line in shown]
    pattern = "\n".join(lines).replace("\n.*", "(?:\n.*)?")
    return re.fullmatch(pattern, printed.rstrip("\n"), re.DOTALL) is not None
