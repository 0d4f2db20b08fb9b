"""The end of the demo: the books as a table for people, or as one JSON object for scripts."""

import sys
from collections.abc import Iterator
from dataclasses import replace

import orjson
from rich.console import Console
from rich.text import Text

from penstock.cli.table import Column, lay_out, upright, width_of_terminal
from penstock.demo.books import Books, Entry
from penstock.demo.screen import money
from penstock.demo.story import Outcome


def as_json(books: Books, outcome: Outcome) -> str:
    first = outcome.first_result
    verdict = {
        "verdict": "ok" if books.ok else "failed",
        "produced": books.produced,
        "counted": books.counted,
        "late": books.late,
        "dead": books.dead,
        "paid": books.paid,
        "unpaid": books.unpaid,
        "lost": books.lost,
        "doubled": books.doubled,
        "kills": outcome.kills,
        "first_result_seconds": None if first is None else round(first, 1),
        "unbalanced": [entry.what for entry in (*books.entries, *books.sums) if not entry.balanced] + list(books.unbalanced),
    }
    return orjson.dumps(verdict).decode()


def print_verdict(books: Books, outcome: Outcome) -> None:
    console = Console(highlight=False, file=sys.stdout)
    for line in _lines(books):
        console.print(line, no_wrap=True)
    for what in books.unbalanced:
        console.print(Text(f"the books of the flow do not balance: {what}", style="bold red"))
    console.print(_closing(books, outcome))


def _lines(books: Books) -> Iterator[Text]:
    entries = [*((entry, _count) for entry in books.entries), *((entry, money) for entry in books.sums)]
    cells = [[entry.what, *map(shown, _numbers(entry))] for entry, shown in entries]
    names = ("", "from the log", "came out", "lost", "doubled")
    columns = [Column(name, [row[i] for row in cells], bool(i), bool(i), key=True) for i, name in enumerate(names)]
    layout = lay_out(columns, width_of_terminal(), beside=0)
    yield Text("the books", style="italic")
    if layout is None:
        yield from map(Text, upright(columns))
        return
    yield from (Text(line, style="bold") for line in layout.header)
    for i, (entry, _) in enumerate(entries):
        one = replace(layout, columns=tuple(replace(column, cells=[column.cells[i]]) for column in layout.columns))
        yield from (Text(line, style=_style(entry)) for line in one.rows)


def _count(number: int) -> str:
    return f"{number:,}"


def _numbers(entry: Entry) -> tuple[int, int, int, int]:
    return entry.expected, entry.found, entry.lost, entry.doubled


def _style(entry: Entry) -> str:
    return "" if entry.balanced else "bold red"


def _closing(books: Books, outcome: Outcome) -> Text:
    sign = "=" if books.produced == books.counted + books.late + books.dead else "≠"
    sums = f"{books.produced:,} orders produced {sign} {books.counted:,} counted + {books.late:,} late + {books.dead:,} unreadable"
    kills = f"the engine was killed {outcome.kills} times in the middle of an epoch"
    verdict = (f"{books.lost} lost · {books.doubled} doubled", "bold green" if books.ok else "bold red")
    return Text.assemble(f"{sums}\n{kills}: ", verdict)
