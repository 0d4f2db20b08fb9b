"""Rows on the terminal or in a pipe: a table for people, JSON lines or CSV for programs.

What data may hold is not what a terminal may be told: characters that would steer it are shown as escapes. Nor is it what a
spreadsheet may be told: text in CSV that begins like a formula gets an apostrophe in front, unless `--raw` was said.
"""

import math
import struct
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.cli.table import Column, Writer

OUTPUTS = ("table", "jsonl", "csv")
NULL = "∅"
_EXACT = {16: 2.0**11, 32: 2.0**24, 64: 1e15}  # from here on a float of so many bits is a whole number, and shown as it is
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_RAW = "penstock.raw"
_CLEAR = "\x1b[H\x1b[2J"
_STEERING = [*range(32), *range(127, 160), *range(0x200E, 0x2010), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_SHOWN = {code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" for code in _STEERING}
_IN_JSON = {code: f"\\u{code:04x}" for code in _STEERING if code >= 127}


def _take_raw(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    ctx.meta[_RAW] = value


raw_option = click.option(
    "--raw",
    is_flag=True,
    expose_value=False,
    callback=_take_raw,
    help="CSV with text as it is; by default text that a spreadsheet would take for a formula gets an apostrophe in front.",
)


def with_raw(output: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """An option `--output`, and `--raw` beside it."""
    return lambda command: output(raw_option(command))


def inert(value: str) -> str:
    """Text as a cell of CSV that no spreadsheet runs."""
    context = click.get_current_context(silent=True)
    raw = context is not None and context.meta.get(_RAW)
    return f"'{value}" if value.startswith(_FORMULA) and not raw else value


def csv_line(cells: Iterable[object]) -> str:
    """A line of CSV. Told that lines end with both, Python puts a cell with either of them into quotes."""
    import csv
    import io

    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow(cells)
    return line.getvalue().removesuffix("\r\n") + "\n"


def is_text(t: Any) -> bool:
    """Whether values of this type are somebody's text, and no numbers or times."""
    import pyarrow as pa

    return not (_is_number(t) or pa.types.is_temporal(t) or pa.types.is_boolean(t))


def print_table(
    table: "pa.Table", output: str | None, title: str | None = None, *, keys: Sequence[str] = (), writer: "Writer | None" = None
) -> None:
    """Prints all rows to standard output. output: one of OUTPUTS; None: a table on a terminal, else JSON lines.

    keys: the columns that tell rows apart, which a table always shows; the first one, if none is named. writer: what printed the
    tables before this one, of which it is the continuation."""
    chosen = kind_of(output)
    if chosen == "jsonl":
        _print_jsonl(table)
    elif chosen == "csv":
        _print_csv(table)
    elif table.num_columns:
        _print_for_people(table, title, keys, writer)


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
    from penstock.log.intake.text import encode_json

    for line in encode_json(table):
        sys.stdout.write(line.decode().translate(_IN_JSON) + "\n")


def _print_csv(table: "pa.Table") -> None:
    on_terminal = sys.stdout.isatty()
    sys.stdout.write(csv_line(inert(name) for name in table.column_names))
    text = [is_text(field.type) for field in table.schema]
    for cells in _cells(table):
        row = [inert(cell) if free else cell for cell, free in zip(cells, text, strict=True)]
        sys.stdout.write(csv_line([safe(cell) for cell in row] if on_terminal else row))


def _print_for_people(table: "pa.Table", title: str | None, keys: Sequence[str], writer: "Writer | None") -> None:
    from penstock.cli.table import Writer, width_of_terminal

    if title:
        click.echo(safe(title))
    width = width_of_terminal()
    header, rows, remark = (writer or Writer()).lines(_columns(table, keys), width)
    for line in header:
        click.echo(click.style(line, bold=True) if sys.stdout.isatty() else line)
    for line in rows:
        click.echo(line)
    if remark:
        click.echo(textwrap.fill(remark, width) if width else remark)


def _columns(table: "pa.Table", keys: Sequence[str]) -> "list[Column]":
    from penstock.cli.table import Column, number_like

    always = set(keys) & set(table.column_names) or set(table.column_names[:1])
    columns = []
    for field, column in zip(table.schema, table.columns, strict=True):
        number, name = _is_number(field.type), safe(field.name)
        cells = [safe(_for_people(value, field.type)) for value in _values(column)]
        whole = number or _is_time(field.type) or number_like(cells, NULL)
        columns.append(Column(name, cells, number, whole, field.name in always))
    return columns


def _is_number(t: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_decimal(t))


def _is_time(t: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_timestamp(t))


def _cells(table: "pa.Table") -> list[list[str]]:
    columns = [[_cell(value) for value in _values(column)] for column in table.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def _values(column: "pa.ChunkedArray") -> list[Any]:
    from penstock.log.intake.text import json_values

    return json_values(column)


def _cell(value: Any) -> str:
    import orjson

    if value is None:
        return ""
    return value if isinstance(value, str) else str(value) if isinstance(value, float) else orjson.dumps(value).decode()


def _for_people(value: Any, t: Any) -> str:
    if value is None:
        return NULL
    return _number(value, t.bit_width) if isinstance(value, float) else _cell(value)


def _number(value: float, bits: int) -> str:
    """A float with as many digits as it can be relied on to have, so 4011.139999999999 reads 4011.14; whole numbers with all."""
    if not math.isfinite(value) or abs(value) >= _EXACT[bits]:
        return str(value)
    if bits == 64:
        return str(float(f"{value:.15g}"))
    short = (f"{value:.{digits}g}" for digits in range(6, 10))  # as few as lead back to it
    return str(float(next((s for s in short if struct.unpack("f", struct.pack("f", float(s)))[0] == value), value)))
