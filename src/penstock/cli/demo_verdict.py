"""The end of the demo: the books as a table for people, or as one JSON object for scripts."""

import sys

import orjson
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.cli.demo_books import Books, Entry
from penstock.cli.demo_screen import money
from penstock.cli.demo_story import Outcome


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
    console.print(_table(books))
    for line in books.unbalanced:
        console.print(Text(f"the books of the flow do not balance: {line}", style="bold red"))
    console.print(_closing(books, outcome))


def _table(books: Books) -> Table:
    table = Table(title="the books", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("")
    for name in ("from the log", "came out", "lost", "doubled"):
        table.add_column(name, justify="right")
    for entry in books.entries:
        table.add_row(entry.what, *(f"{n:,}" for n in _numbers(entry)), style=_style(entry))
    table.add_section()
    for entry in books.sums:
        table.add_row(entry.what, *(money(n) for n in _numbers(entry)), style=_style(entry))
    return table


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
