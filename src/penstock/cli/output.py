"""Rows on the terminal or in a pipe: a table for people, JSON lines or CSV for programs.

What data may hold is not what a terminal may be told: characters that would steer it are shown as escapes.
"""

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import click

if TYPE_CHECKING:
    import pyarrow as pa

OUTPUTS = ("table", "jsonl", "csv")
_CLEAR = "\x1b[H\x1b[2J"
_STEERING = [*range(32), *range(127, 160), *range(0x200E, 0x2010), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_SHOWN = {code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" for code in _STEERING}
_IN_JSON = {code: f"\\u{code:04x}" for code in _STEERING if code >= 127}


def print_table(table: "pa.Table", output: str | None, title: str | None = None) -> None:
    """Prints all rows to standard output. output: one of OUTPUTS; None: a table on a terminal, else JSON lines."""
    chosen = kind_of(output)
    if chosen == "jsonl":
        _print_jsonl(table)
    elif chosen == "csv":
        _print_csv(table)
    else:
        _print_for_people(table, title)


def kind_of(output: str | None) -> str:
    """One of OUTPUTS, whether it was asked for or not."""
    return output or ("table" if sys.stdout.isatty() else "jsonl")


def again_and_again(show: Callable[[], None], output: str | None, every: float) -> None:
    """Shows something until Ctrl-C; for people, in the same place."""
    live = sys.stdout.isatty() and kind_of(output) == "table"
    try:
        while True:
            if live:
                click.echo(_CLEAR, nl=False)
            show()
            sys.stdout.flush()
            time.sleep(every)
    except KeyboardInterrupt:
        return


def safe(value: str) -> str:
    """Text that a terminal can be given: steering characters as escapes."""
    return value.translate(_SHOWN)


def _print_jsonl(table: "pa.Table") -> None:
    from penstock.log.text import encode_json

    for line in encode_json(table):
        sys.stdout.write(line.decode().translate(_IN_JSON) + "\n")


def _print_csv(table: "pa.Table") -> None:
    import csv

    on_terminal = sys.stdout.isatty()
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(table.column_names)
    for row in _cells(table):
        writer.writerow([safe(cell) for cell in row] if on_terminal else row)


def _print_for_people(table: "pa.Table", title: str | None) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(title=Text(safe(title)) if title else None, box=box.SIMPLE_HEAD, title_justify="left")
    for field in table.schema:
        whole = _is_number(field.type) or _is_time(field.type)  # a number or a time that is broken in two reads as another one
        side: Literal["left", "right"] = "right" if _is_number(field.type) else "left"
        shown.add_column(Text(safe(field.name)), justify=side, overflow="fold", no_wrap=whole)
    for row in _cells(table, null="∅"):
        shown.add_row(*(Text(safe(cell)) for cell in row))
    Console(highlight=False, soft_wrap=False, file=sys.stdout).print(shown)


def _is_number(t: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_decimal(t))


def _is_time(t: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_timestamp(t))


def _cells(table: "pa.Table", null: str = "") -> list[list[str]]:
    from penstock.log.text import json_values

    columns = [[_cell(value, null) for value in json_values(column)] for column in table.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def _cell(value: Any, null: str) -> str:
    import orjson

    if value is None:
        return null
    return value if isinstance(value, str) else str(value) if isinstance(value, float) else orjson.dumps(value).decode()
