"""What a script prints, and how its tables come into a document: between `<!-- NAME -->` and `<!-- /NAME -->`."""

import argparse
import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psutil


def options(description: str, rows: int, quick_rows: int) -> argparse.ArgumentParser:
    """The options that every script has; `--rows` is what --quick leaves of them, unless it is given."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help=f"few rows ({quick_rows:,}) and one repetition: does it still run?")
    parser.add_argument("--rows", type=int, help=f"default {rows:,}")
    parser.add_argument("--repeat", type=int, help="measured repetitions; medians are shown")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="put the tables into this document, too")
    parser.set_defaults(full_rows=rows, quick_rows=quick_rows)
    return parser


def parsed(parser: argparse.ArgumentParser, repeat: int = 3) -> argparse.Namespace:
    given = parser.parse_args()
    given.rows = given.rows or (given.quick_rows if given.quick else given.full_rows)
    given.repeat = given.repeat or (1 if given.quick else repeat)
    return given


class Table:
    """A table that grows line by line, and is printed as Markdown."""

    def __init__(self, title: str, *columns: str) -> None:
        self.title, self.columns = title, columns
        self.lines: list[tuple[str, ...]] = []

    def add(self, *cells: object) -> None:
        if len(cells) != len(self.columns):
            raise ValueError(f"{len(self.columns)} columns, {len(cells)} cells")
        self.lines.append(tuple(str(cell) for cell in cells))
        print("  " + " · ".join(self.lines[-1]), file=sys.stderr, flush=True)

    def text(self) -> str:
        widths = [max(len(line[i]) for line in [self.columns, *self.lines]) for i in range(len(self.columns))]
        rule = tuple("-" * width for width in widths)
        rows = [
            "| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |"
            for line in [self.columns, rule, *self.lines]
        ]
        return "\n".join([f"**{self.title}**", "", *rows])


def publish(name: str, tables: Sequence[Table], document: Path | None) -> None:
    """Prints the tables with the environment they were measured in; puts them into the document."""
    text = "\n\n".join([*(table.text() for table in tables), f"*{environment()}*"])
    print(text)
    if document:
        document.write_text(placed(document.read_text(), name, text))


def placed(document: str, name: str, text: str) -> str:
    """The document with the text between the two comments that bear the name."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    found = re.search(f"{re.escape(begin)}.*?{re.escape(end)}", document, re.DOTALL)
    if not found:
        raise SystemExit(f"the document has no place for {name}: {begin} … {end}")
    return f"{document[: found.start()]}{begin}\n{text}\n{end}{document[found.end() :]}"


def environment() -> str:
    memory = psutil.virtual_memory().total / 2**30
    parts = [
        f"{datetime.now(UTC):%Y-%m-%d}",
        f"{os.cpu_count()} cores",
        f"{memory:.0f} GiB",
        f"{platform.system()} {platform.release().split('-')[0]}",
        f"Python {platform.python_version()}",
        f"Java {_java()}",
        *(f"{name} {version(name)}" for name in ("pyspark", "polars", "pyarrow")),
    ]
    return ", ".join(parts)


def _java() -> str:
    from penstock.engine.spark.java import find_java

    told = subprocess.run([find_java().path, "-version"], capture_output=True, text=True, check=True).stderr
    found = re.search(r'"([^"]+)"', told)
    return found[1] if found else "?"


def rate(per_second: float) -> str:
    """2.35 M, 812 k, 57: three digits are enough."""
    if per_second >= 1e6:
        return f"{per_second / 1e6:.3g} M"
    return f"{per_second / 1e3:.3g} k" if per_second >= 1e3 else f"{per_second:.3g}"


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms" if seconds >= 0.01 else f"{seconds * 1e3:.1f} ms"


def percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def gibibytes(size: float) -> str:
    return f"{size / 2**30:.2f} GiB"
