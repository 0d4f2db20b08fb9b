"""penstock cdc status: captures as their journals tell them and, where the database answers, what it keeps for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
import orjson
import pyarrow as pa

from penstock.capture.definition import CaptureDefinition
from penstock.capture.kind import Inspecting, Kept, kind_of
from penstock.capture.naming import escaped
from penstock.capture.registry import Captures
from penstock.capture.runner import runs
from penstock.capture.writing.journal import CaptureState, read_journal
from penstock.cli.cdc.findings import SIGNS
from penstock.cli.flow.state import size_text
from penstock.cli.output import kind_of as output_of
from penstock.cli.output import print_table, safe
from penstock.core.arrow import schema_of, values_in
from penstock.core.columns import VALUE
from penstock.core.schema import TIMESTAMP
from penstock.errors import PenstockError
from penstock.log.open import open_log
from penstock.log.port import Log

UNHEALTHY = 4
_LAST = 64  # offsets at the end of the journal; those that a broker uses itself hold no record
TABLES = pa.list_(pa.struct([("topic", pa.string()), ("table", pa.string()), ("rows", pa.int64()), ("copied", pa.bool_())]))
LIST = schema_of(
    [
        ("capture", pa.string()),
        ("state", pa.string()),
        ("lag_bytes", pa.int64()),
        ("lag_seconds", pa.float64()),
        ("kept_bytes", pa.int64()),
        ("last_commit", TIMESTAMP),
        ("batch", pa.int64()),
        ("copies_unfinished", pa.int64()),
        ("engine", pa.string()),
        ("database", pa.string()),
        ("trouble", pa.string()),
    ]
)
ALL = schema_of([*LIST, ("topics", TABLES)])
TOPICS = schema_of([("topic", pa.string()), ("table", pa.string()), ("rows", pa.int64()), ("copied", pa.bool_())])


@dataclass(frozen=True)
class Shown:
    """One capture. trouble: why somebody should look at it."""

    definition: CaptureDefinition
    state: CaptureState
    running: bool | None
    last_commit: int | None  # microseconds
    kept: Kept
    unanswered: str | None
    trouble: str | None

    @property
    def row(self) -> dict[str, Any]:
        kept = self.kept
        return {
            "capture": self.definition.name,
            "state": self.words,
            "lag_bytes": kept.lag_bytes,
            "lag_seconds": None if kept.lag_seconds is None else round(kept.lag_seconds, 1),
            "kept_bytes": kept.kept_bytes,
            "last_commit": self.last_commit,
            "batch": self.state.batch,
            "copies_unfinished": sum(done is False for done in self.copied.values()),
            "engine": self.definition.engine,
            "database": self.definition.url,
            "trouble": self.trouble or self.unanswered,
        }

    @property
    def words(self) -> str:
        if not self.definition.prepared:
            return "not prepared"
        return {True: "running", False: "stopped", None: "unknown"}[self.running]

    @property
    def copied(self) -> Mapping[str, bool | None]:
        """Of each table, as `schema.table`, whether its copy is finished; None where the engine does not tell."""
        told = (self.state.position or {"copied": {}}).get("copied")
        if not isinstance(told, Mapping):
            return {_name(table): None for table in self.definition.tables}
        return {_name(table): bool((told.get(_escaped(table)) or {}).get("done")) for table in self.definition.tables}

    def topics(self, log: Log) -> list[dict[str, Any]]:
        there, names = set(log.topics()), self.definition.names
        rows = []
        for table in self.definition.tables:
            topic = names.topic(table)
            ends = log.topic(topic).ends().values() if topic in there else ()
            count = sum(end.next - end.first for end in ends)
            rows.append({"topic": topic, "table": _name(table), "rows": count, "copied": self.copied[_name(table)]})
        return rows


def print_status(names: Sequence[str], output: str | None, limit: int) -> int:
    """Prints captures; the exit code: 4 if one of them needs somebody."""
    captures, log = Captures(), open_log()
    shown = [look(captures, log, name, limit) for name in names or captures.names()]
    if not shown and not output:
        click.echo("no captures here; penstock cdc add NAME URL --tables … adds one", err=True)
        return 0
    if output_of(output) == "jsonl":
        rows = [each.row | {"topics": each.topics(log)} for each in shown]
        print_table(pa.Table.from_pylist(rows, ALL), output)
    else:
        print_table(pa.Table.from_pylist([each.row for each in shown], LIST), output, keys=["capture"])
        if names and output_of(output) == "table":
            for each in shown:
                click.echo("")
                print_table(pa.Table.from_pylist(each.topics(log), TOPICS), output, keys=["topic"])
    for each in shown:
        for line in _told(each):
            click.echo(safe(line), err=True)
    return UNHEALTHY if any(each.trouble for each in shown) else 0


def look(captures: Captures, log: Log, name: str, limit: int) -> Shown:
    definition = captures.get(name)
    state, last_commit = _journal(log, definition)
    kept, unanswered = _kept(definition)
    trouble = kept.trouble or _grown(kept, limit)
    return Shown(definition, state, runs(captures.storage(name)), last_commit, kept, unanswered, trouble)


def _journal(log: Log, definition: CaptureDefinition) -> tuple[CaptureState, int | None]:
    """The state behind the last batch, and the time of its last commit."""
    name = definition.names.transactions
    if name not in log.topics():
        return CaptureState(), None
    topic = log.topic(name)
    state, end = read_journal(topic).state, topic.ends()[0]
    values = [
        v for chunk in topic.read(0, max(end.first, end.next - _LAST), end.next) for v in values_in(chunk.rows.column(VALUE), bytes)
    ]
    times = [told["ts_ms"] for told in map(orjson.loads, values) if told.get("status") == "END" and told.get("ts_ms")]
    return state, times[-1] * 1000 if times else None


def _kept(definition: CaptureDefinition) -> tuple[Kept, str | None]:
    """What the database says; why it says nothing."""
    kind = kind_of(definition.engine)
    if not isinstance(kind, Inspecting):
        return Kept(), None
    try:
        found = kind.look(definition)
    except PenstockError as error:
        return Kept(), error.what
    return (found, None) if definition.prepared else (Kept(), None)


def _grown(kept: Kept, limit: int) -> str | None:
    """The limit that was asked for, or most of what the server gives before it drops the slot."""
    most = limit if kept.limit_bytes is None else min(limit, kept.limit_bytes * 8 // 10)
    if kept.kept_bytes is None or kept.kept_bytes <= most:
        return None
    return f"the database keeps {size_text(kept.kept_bytes)} of its log for this capture, more than {size_text(most)}"


def _told(shown: Shown) -> list[str]:
    """What deserves a sentence."""
    name, lines = shown.definition.name, list[str]()
    if shown.trouble:
        lines.append(f"{SIGNS['error']} {name}: {shown.trouble}")
        if shown.kept.trouble:
            lines.append(f"    penstock cdc run {name} --resnapshot makes a new one and writes what differs")
        elif not shown.running:
            lines.append(f"    nobody runs it: penstock cdc run {name}; or penstock cdc remove {name}, if nobody needs it")
    if shown.unanswered:
        lines.append(f"{SIGNS['warning']} {name}: the database does not answer: {shown.unanswered}")
    if not shown.definition.prepared:
        lines.append(
            f"{SIGNS['warning']} {name}: it was not prepared to the end; penstock cdc add again, or penstock cdc remove {name}"
        )
    return lines


def _escaped(table: tuple[str, str]) -> str:
    """As positions have it."""
    return ".".join(map(escaped, table))


def _name(table: tuple[str, str]) -> str:
    return ".".join(part for part in table if part)
