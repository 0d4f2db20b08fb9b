"""What a look at a database found, for people and for programs: a line each, with the statements that mend it."""

from collections.abc import Sequence

import click
import pyarrow as pa

from penstock.capture.kind import Finding
from penstock.cli.output import kind_of, print_table, safe
from penstock.core.arrow import schema_of
from penstock.errors import NotFollowable

SIGNS = {"ok": "✓", "warning": "!", "error": "✗"}
SCHEMA = schema_of([("level", pa.string()), ("what", pa.string()), ("mend", pa.list_(pa.string()))])


def print_findings(findings: Sequence[Finding], output: str | None) -> None:
    """Lines as the doctor has them; with --output jsonl or csv a row each."""
    if output and kind_of(output) != "table":
        rows = [{"level": each.level, "what": each.what, "mend": list(each.mend)} for each in findings]
        print_table(pa.Table.from_pylist(rows, SCHEMA), output)
        return
    for each in findings:
        click.echo(safe(f"{SIGNS[each.level]} {each.what}"))
        for mend in each.mend:
            click.echo(sql_text(mend, "    "))


def sql_text(statement: str, indent: str = "") -> str:
    """A statement as it is shown, on its own lines."""
    return "\n".join(f"{indent}{safe(line)}" for line in statement.splitlines())


def refused(findings: Sequence[Finding]) -> NotFollowable | None:
    """The error that says what is wrong, with what mends it; None if nothing is."""
    wrong = [each for each in findings if each.level == "error"]
    if not wrong:
        return None
    lines = [line for each in wrong for line in (f"✗ {each.what}", *(f"    {mend}" for mend in each.mend))]
    return NotFollowable("the database cannot be followed like this", *lines, hint="nothing was changed; mend it and try again")
