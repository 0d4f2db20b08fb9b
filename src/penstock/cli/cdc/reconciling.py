"""penstock cdc reconcile, and a new snapshot: the source against the log, with progress, and what differs."""

from collections.abc import Sequence
from typing import Any

import click
import pyarrow as pa

from penstock.capture.kind import kind_of
from penstock.capture.port import Table
from penstock.capture.reconcile import Followed, ReconcileProgress, Reconciliation, TableResult, followed, reconcile, repair
from penstock.capture.registry import Captures
from penstock.capture.resnapshot import resnapshot
from penstock.cli.cdc.adding import split
from penstock.cli.lines import Lines, bar
from penstock.cli.output import kind_of as output_of
from penstock.cli.output import print_table, safe
from penstock.core.arrow import schema_of
from penstock.log.open import open_log

UNHEALTHY = 4
_WORDS = {
    "waiting": "waiting for the log",
    "log": "reading the topic of",
    "source": "comparing",
    "details": "looking at differences of",
    "repair": "repairing",
}
_NUMBERS = ("rows", "log_rows", "missing", "extra", "different", "repaired")
TABLES = schema_of(
    [("table", pa.string()), ("equal", pa.bool_()), *((name, pa.int64()) for name in _NUMBERS), ("topic", pa.string())]
)
_COLUMN = pa.struct([("name", pa.string()), ("source", pa.string()), ("log", pa.string())])
_SHOWN = pa.list_(pa.struct([("kind", pa.string()), ("key", pa.string()), ("columns", pa.list_(_COLUMN))]))
ALL = schema_of([*TABLES, ("differences", _SHOWN)])


def run_reconcile(name: str, patterns: Sequence[str], repairs: bool, output: str | None, quiet: bool) -> int:
    of = followed(name, open_log(), Captures())
    tables = _tables(of, patterns)
    lines = Lines(quiet)
    try:
        work = repair if repairs else reconcile
        found = work(of, tables, report=_reporter(lines))
    finally:
        lines.wipe()
    print_result(found, output)
    return 0 if found.equal else UNHEALTHY


def run_resnapshot(names: Sequence[str], quiet: bool) -> None:
    """Makes each capture go on from a new place in its source, and says what was written."""
    for name in dict.fromkeys(names):
        of, lines = followed(name, open_log(), Captures()), Lines(quiet)
        try:
            found = resnapshot(of, report=_reporter(lines))
        finally:
            lines.wipe()
        lines.close_with(f"{name}: {found.rows:,} rows compared, {found.repaired:,} records written where the topics differed")


def print_result(found: Reconciliation, output: str | None) -> None:
    """Of a repair, what the first comparison found."""
    of = found.first or found
    repaired = {each.table: each.repaired for each in found.tables}
    rows = [_row(each, repaired[each.table]) for each in of.tables]
    if output_of(output) == "jsonl":
        full = [row | {"differences": _differences(each)} for row, each in zip(rows, of.tables, strict=True)]
        print_table(pa.Table.from_pylist(full, ALL), output)
    else:
        print_table(pa.Table.from_pylist(rows, TABLES), output, keys=["table"])
        for line in _in_words(of):
            click.echo(safe(line), err=True)
    click.echo(safe(_verdict(found)), err=True)


def _row(of: TableResult, repaired: int) -> dict[str, Any]:
    numbers = {name: getattr(of, name) for name in _NUMBERS if name != "repaired"}
    return {"table": _name(of.table), "equal": of.equal, **numbers, "repaired": repaired, "topic": of.topic}


def _differences(of: TableResult) -> list[dict[str, Any]]:
    return [{"kind": each.kind, "key": each.key, "columns": [vars(column) for column in each.columns]} for each in of.shown]


def _in_words(of: Reconciliation) -> list[str]:
    lines = []
    for table in of.tables:
        for each in table.shown:
            columns = ", ".join(f"{c.name}: source {c.source or 'has none'}, log {c.log or 'has none'}" for c in each.columns)
            lines.append(f"  {_name(table.table)} {each.key} is {each.kind}{': ' if columns else ''}{columns}")
        if table.differences > len(table.shown):
            lines.append(f"  {_name(table.table)}: {table.differences - len(table.shown):,} more")
    return lines


def _verdict(found: Reconciliation) -> str:
    tables = f"{len(found.tables)} table{'' if len(found.tables) == 1 else 's'}"
    how = f"{found.rows:,} rows of {tables} compared in {found.seconds:.1f} s, at {found.position}"
    if found.first:
        return f"{'equal' if found.equal else 'NOT EQUAL'} after {found.repaired:,} records were written: {how}"
    return f"equal: {how}" if found.equal else f"NOT EQUAL, {found.differences:,} keys differ: {how}"


def _reporter(lines: Lines) -> Any:
    told: list[str] = []

    def report(progress: ReconcileProgress) -> None:
        words = " ".join([_WORDS[progress.phase], *([_name(progress.table)] if progress.table else [])])
        if lines.live:
            lines.rewrite(
                [
                    " · ".join(
                        [
                            f"{words} {bar(progress.done, progress.total)}".rstrip(),
                            f"{progress.done:,}",
                            *filter(None, [progress.note]),
                        ]
                    )
                ]
            )
        elif told[-1:] != [words]:
            told.append(words)
            lines.say(f"{words}{': ' if progress.note else ''}{progress.note}")

    return report


def _tables(of: Followed, patterns: Sequence[str]) -> Sequence[Table] | None:
    wanted = split(patterns)
    return kind_of(of.definition.engine).tables(of.definition, wanted) if wanted else None


def _name(table: Table) -> str:
    return ".".join(part for part in table if part)
