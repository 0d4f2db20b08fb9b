"""What another lateness would have made of stored rows, for people and for programs."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

from penstock.cli.flow.load import load_flows
from penstock.cli.output import kind_of, print_table
from penstock.core.time import duration, duration_text, micros
from penstock.engine.diagnose.disorder import rounded_text
from penstock.engine.diagnose.trace import marks_of, programs
from penstock.engine.diagnose.whatif import Tried, what_if
from penstock.engine.execute.program import Program
from penstock.engine.run.epoch.decision import Decisions
from penstock.errors import BadInput
from penstock.storage.local import LocalStorage

_SHARES = (("99 %", 0.99), ("99.9 %", 0.999), ("100 %", 1.0))


def print_what_if(home: Path, flow: str, lateness: str, output: str | None) -> None:
    """For each flow of the file and each judging step: as it is, and as it would be."""
    other = micros(duration(lateness, "lateness"))
    if not flow.endswith(".py"):
        hint = f'give its file: penstock fates {flow}.py --lateness "{lateness}"'
        raise BadInput("--lateness needs the flow's program", hint=hint)
    chosen = kind_of(output)
    for program, log in programs(home, load_flows([flow])):
        name = program.plan.flow
        marks = marks_of(Decisions(LocalStorage(str(home / "flows" / name)), name))
        topics = {spec.topic: log.topic(spec.topic) for spec in program.sources.values() if spec.there and not spec.static}
        tried = what_if(program, topics, marks, other)
        if not tried:
            click.echo(f"flow {name}: no step judges rows of a stream that is there", err=True)
            continue
        rows = [line for step in tried for line in _lines(program, step, other)]
        table = pa.Table.from_pylist(_short(rows) if chosen == "table" else rows)
        print_table(table, chosen, f"flow {name}", keys=["step", "setting", "lateness"])
        for step in tried:
            _remarks(step, chosen)


def _lines(program: Program, tried: Tried, other: int) -> list[dict[str, Any]]:
    """Two lines for a step."""
    own = {program.sources[s].lateness for s in tried.sources}
    known = " / ".join(duration_text(timedelta(microseconds=us)) for us in sorted(us for us in own if us is not None))
    settings = [("now", known or "by marks", tried.own)]
    settings.append(("what if", duration_text(timedelta(microseconds=other)), tried.other))
    least = {f"keeps {words}": rounded_text(tried.keeping(share)) for words, share in _SHARES}
    return [
        {"flow": program.plan.flow, "step": tried.step, "setting": word, "lateness": lateness}
        | {fate: fates[fate] for fate in ("on time", "corrected", "late", "outside")}
        | least
        for word, lateness, fates in settings
    ]


def _short(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What fits a terminal: without fates that nobody has, and without what is told below."""
    unseen = {fate for fate in ("corrected", "outside") if not any(row[fate] for row in rows)}
    told = {"flow", *(f"keeps {words}" for words, _ in _SHARES)}
    return [{name: value for name, value in row.items() if name not in unseen | told} for row in rows]


def _remarks(tried: Tried, output: str) -> None:
    if output == "table":
        least = " · ".join(f"{words} with {rounded_text(tried.keeping(share))}" for words, share in _SHARES)
        click.echo(f"{tried.step} keeps {least}")
    if tried.late_by_mark:
        click.echo(f"{tried.step}: {tried.late_by_mark:,} are late whatever the lateness: a mark stands before them", err=True)
    for step in dict.fromkeys(tried.spark):
        click.echo(f"{tried.step}: what comes through {step} is not counted: only Spark SQL can evaluate it", err=True)
