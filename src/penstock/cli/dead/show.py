"""Dead letters of flows on the terminal or in a pipe, and what a redrive does with them."""

from collections import Counter, deque
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

from penstock.cli.flow.load import load_flows
from penstock.cli.output import print_table
from penstock.cli.topic.rows import as_object, free_name
from penstock.cli.topic.where import Condition
from penstock.core.arrow import schema_of
from penstock.core.schema import TIMESTAMP
from penstock.engine.diagnose.inspect import decisions_of, flows
from penstock.engine.flows.dead import DeadLetter, dead_letters_of
from penstock.engine.flows.redriving import Intended, Redriving
from penstock.log.open import open_log
from penstock.storage.home import find_home

_COUNTS = schema_of(
    [("flow", pa.string()), ("step", pa.string()), ("expression", pa.string()), ("cause", pa.string()), ("rows", pa.int64())]
)
_LETTERS = schema_of(
    [
        ("letter", pa.string()),
        ("step", pa.string()),
        ("expression", pa.string()),
        ("reason", pa.string()),
        ("record", pa.string()),
        ("time", TIMESTAMP),
        ("row", pa.string()),
    ]
)
_MOVES = schema_of(
    [("record", pa.string()), ("step", pa.string()), ("cause", pa.string()), ("fate", pa.string()), ("late", pa.bool_())]
)


def print_counts(flow: str | None, output: str | None) -> bool:
    """Prints how many letters there are of each kind; False if there is none."""
    home = find_home()
    names, log = flows(home) if flow is None else _named(home, flow), open_log(home)
    counts = Counter((name, x.step, x.expression, x.cause) for name in names for x in dead_letters_of(log, name))
    rows = [dict(zip(_COUNTS.names, (*kind, number), strict=True)) for kind, number in counts.most_common()]
    if rows:
        print_table(pa.Table.from_pylist(rows, _COUNTS), output, keys=["flow", "step"])
    return bool(rows)


def print_letters(flow: str, chosen: Callable[[DeadLetter], bool], most: int, output: str | None) -> bool:
    """Prints the last letters; False if there is none."""
    home = find_home()
    log = open_log(home)
    found = deque((x for name in _named(home, flow) for x in dead_letters_of(log, name) if chosen(x)), most)
    if found:
        print_table(pa.Table.from_pylist([_row(letter) for letter in found], _LETTERS), output, keys=["letter", "record"])
    return bool(found)


def redriven(
    flow: str, chosen: Callable[[DeadLetter], bool], *, most: int | None, again: bool, dry_run: bool, output: str | None
) -> None:
    """Sends letters back, or says what would be sent."""
    home = find_home()
    log = open_log(home)
    for name in _named(home, flow):
        redriving = Redriving(log, decisions_of(home, name))
        judged = redriving.intended((x for x in dead_letters_of(log, name) if chosen(x)), again)
        going = list(islice((one for one in judged if one.goes), most))
        left = Counter(one.what for one in judged if not one.goes)
        if dry_run or output:
            shown = [_move(one) for one in [*going, *(one for one in judged if not one.goes)]]
            print_table(pa.Table.from_pylist(shown, _MOVES), output, keys=["record"])
        sent = len(going) if dry_run else redriving.send(going)
        late = sum(one.late for one in going)
        count = f"{sent:,} record{'' if sent == 1 else 's'} of {name}"
        told = [f"nothing sent; {count} would be sent back" if dry_run else f"sent back {count}"]
        told += [f"{late:,} behind the watermark: late where a step judges them"] if late else []
        told += [f"{number:,} {what}" for what, number in left.items()]
        click.echo(" · ".join(told), err=True)


def holds(where: str | None) -> Callable[[DeadLetter], bool]:
    """Whether a condition in SQL holds of a letter: on fields of its row, and step, expression, cause, reason, record."""
    if where is None:
        return lambda letter: True
    found = Condition(where, [])

    def check(letter: DeadLetter) -> bool:
        fields = as_object(letter.row.encode())
        said: dict[str, Any] = {"step": letter.step, "expression": letter.expression, "cause": letter.cause}
        for name, value in (said | {"reason": letter.reason, "record": _place(letter)}).items():
            fields[free_name(name, fields)] = value
        table = pa.table({name: [value] for name, value in fields.items() if name in found.columns} or {"": [None]})
        return len(found.places(table)) == 1

    return check


def _named(home: Path, flow: str) -> list[str]:
    """The flow of this name, or those that a file defines."""
    names = [graph.name for graph in load_flows([flow])] if flow.endswith(".py") else [flow]
    for name in names:
        decisions_of(home, name)  # NotFound, with the names that are there
    return names


def _place(letter: DeadLetter) -> str | None:
    return str(letter.record) if letter.record else None


def _row(letter: DeadLetter) -> dict[str, Any]:
    return {
        "letter": str(letter.place),
        "step": letter.step,
        "expression": letter.expression,
        "reason": letter.reason,
        "record": _place(letter),
        "time": letter.time,
        "row": letter.row,
    }


def _move(one: Intended) -> dict[str, Any]:
    fate = {"ready": "redrive", "again": "redrive again"}.get(one.what, one.what)
    return {
        "record": _place(one.letter),
        "step": one.letter.step,
        "cause": one.letter.cause,
        "fate": fate,
        "late": one.late if one.goes else None,
    }
