"""penstock sink reconcile and rebuild: stores compared with the log, put right, filled anew."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import click
import pyarrow as pa

from penstock.cli.flow.load import load_flows
from penstock.cli.lines import Lines, bar
from penstock.cli.main import report
from penstock.cli.output import kind_of, print_table, safe
from penstock.core.arrow import schema_of
from penstock.engine.replay.instep import InStep, SinkCheck, places_of, sink_named, stores_of
from penstock.engine.run.runtime import Runtime, log_of
from penstock.errors import BadInput, NotFound, PenstockError
from penstock.flow.graph import FlowGraph
from penstock.plan import Output, Plan
from penstock.sinks.stores.comparing import Compared
from penstock.storage.home import find_home

UNHEALTHY = 4
_NUMBERS = ("rows", "expected", "missing", "extra", "different", "unsettled")
_COLUMN = pa.struct([("name", pa.string()), ("log", pa.string()), ("store", pa.string())])
_SHOWN = pa.list_(pa.struct([("kind", pa.string()), ("key", pa.string()), ("columns", pa.list_(_COLUMN))]))
SINKS = schema_of(
    [
        *((name, pa.string()) for name in ("flow", "sink")),
        ("equal", pa.bool_()),
        *((name, pa.int64()) for name in (*_NUMBERS, "written", "refused", "epoch")),
    ]
)
ALL = schema_of([*SINKS, *((name, pa.int64()) for name in ("ranges", "ranges_apart")), ("differences", _SHOWN)])


@dataclass(frozen=True)
class Asked:
    """What both commands take."""

    file: str
    view: str | None
    master: str | None
    quiet: bool
    output: str | None

    @cached_property
    def lines(self) -> Lines:
        return Lines(self.quiet)


def run_reconcile(asked: Asked, names: Sequence[str], repair: bool) -> int:
    """The exit code."""
    found, failed = list[InStep](), list[PenstockError]()
    for check in _checks(asked, names):
        try:
            found.append(_shown(asked.lines, check, lambda check: check.reconcile(repair)))
        except PenstockError as error:  # the others are compared all the same
            failed.append(error)
    if found:
        _print(found, asked.output)
    _raise(failed)
    return 0 if all(_settled(each) for each in found) else UNHEALTHY


def _raise(failed: Sequence[PenstockError]) -> None:
    """The last of them, behind what was found and what the others say."""
    sys.stdout.flush()
    for error in failed[:-1]:
        report(error)
    if failed:
        raise failed[-1]


def run_rebuild(asked: Asked, name: str, yes: bool) -> int:
    def agreed(compared: Compared) -> bool:
        asked.lines.wipe()
        return yes or _asked(name, compared)

    found = [_shown(asked.lines, check, lambda check: check.rebuild(agreed)) for check in _checks(asked, [name])]
    _print(found, asked.output)
    return 0


def _checks(asked: Asked, names: Sequence[str]) -> list[SinkCheck]:
    graphs: list[FlowGraph] = load_flows([asked.file])
    runtime = Runtime(find_home(), asked.master, say=asked.lines.say, url=log_of(graphs))
    plans = [runtime.plan(graph, graphs) for graph in graphs]
    chosen = [_named(plans, name) for name in names] or [(plan, output) for plan in plans for output in stores_of(plan)]
    if not chosen:
        raise NotFound("none of these flows writes to a store", hint="penstock sink list")
    if asked.view and len(chosen) > 1:
        raise BadInput("--from-view says what one sink should hold", hint="name the sink")
    return [
        SinkCheck(runtime, plan, output, place, asked.view, _reporter(asked.lines, output.id))
        for plan, output in chosen
        for place in places_of(output)
    ]


def _named(plans: Sequence[Plan], name: str) -> tuple[Plan, Output]:
    for plan in plans[:-1]:
        try:
            return plan, sink_named(plan, name)
        except NotFound:
            continue
    return plans[-1], sink_named(plans[-1], name)


def _shown(lines: Lines, check: SinkCheck, work: Any) -> InStep:
    try:
        found: InStep = work(check)
        return found
    finally:
        lines.wipe()


def _reporter(lines: Lines, sink: str) -> Any:
    told: list[str] = []

    def report(what: str, done: int, total: int) -> None:
        if lines.live:
            numbers = f"{done:,} of {total:,}" if total else ""
            lines.rewrite([" ".join(filter(None, [f"{sink}: {what}", bar(done, total), numbers]))])
        elif told[-1:] != [what]:
            told.append(what)
            lines.say(f"{sink}: {what}")

    return report


def _asked(sink: str, compared: Compared) -> bool:
    """What would be written, and whether that is wanted."""
    if compared.equal:
        return True
    put, gone = compared.missing + compared.different, compared.extra
    what = f"{sink}: {put:,} rows are put in, and {gone:,} taken out that the log does not have"
    if not sys.stdin.isatty():
        raise BadInput(what, hint="--yes does it without asking")
    return click.confirm(f"{what}. Write them?", err=True)


def _settled(found: InStep) -> bool:
    compared = found.compared
    wrong = compared.missing + compared.extra + compared.different
    return not wrong or found.written == wrong


def _print(found: Sequence[InStep], output: str | None) -> None:
    rows = [_row(each) for each in found]
    if kind_of(output) == "jsonl":
        full = [row | _details(each.compared) for row, each in zip(rows, found, strict=True)]
        print_table(pa.Table.from_pylist(full, ALL), output)
    else:
        print_table(pa.Table.from_pylist(rows, SINKS), output, keys=["sink"])
        for line in (line for each in found for line in _in_words(each)):
            click.echo(safe(line), err=True)
    for each in found:
        click.echo(safe(_verdict(each)), err=True)


def _row(of: InStep) -> dict[str, Any]:
    numbers = {name: getattr(of.compared, name) for name in _NUMBERS}
    more = {"written": of.written, "refused": of.refused, "epoch": of.epoch}
    return {"flow": of.flow, "sink": of.sink, "equal": of.compared.equal, **numbers, **more}


def _details(of: Compared) -> dict[str, Any]:
    shown = [{"kind": each.kind, "key": each.key, "columns": [vars(column) for column in each.columns]} for each in of.shown]
    return {"ranges": of.ranges, "ranges_apart": of.ranges_apart, "differences": shown}


def _in_words(of: InStep) -> list[str]:
    lines = []
    for each in of.compared.shown:
        columns = ", ".join(f"{c.name}: log {c.log}, store {c.store}" for c in each.columns)
        lines.append(f"  {of.sink} {each.key} is {each.kind}{': ' if columns else ''}{columns}")
    more = of.compared.missing + of.compared.extra + of.compared.different - len(of.compared.shown)
    return [*lines, f"  {of.sink}: {more:,} more"] if more > 0 else lines


def _verdict(of: InStep) -> str:
    compared, where = of.compared, f"{of.sink} ({of.store}) at epoch {of.epoch}"
    ranges = f"{compared.ranges_apart} of {compared.ranges} ranges differ"
    how = f"{compared.rows:,} rows against {compared.expected:,} of {of.by}, {ranges}"
    if of.written or of.refused:
        refused = f", {of.refused:,} refused by the store" if of.refused else ""
        return f"{where}: {of.written:,} rows written{refused}; there were {how}"
    unsettled = f", {compared.unsettled:,} rows written meanwhile are not settled" if compared.unsettled else ""
    return f"{where}: {'equal' if compared.equal else 'NOT EQUAL'}, {how}{unsettled}"
