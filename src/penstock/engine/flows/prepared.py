"""Transactions that sinks over several databases have left prepared: found, explained, and finished where that is asked for.

A start of the flow finishes what it finds. These are for flows that do not start any more, or have another life by now."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.core.schema import Schema
from penstock.core.time import duration_text
from penstock.engine.diagnose.inspect import Finding, decisions_of, flows
from penstock.engine.flows.listing import runs
from penstock.engine.run.epoch.decision import Decisions
from penstock.engine.run.lock import held_lock
from penstock.errors import Held, NotFound, PenstockError
from penstock.sinks.port import SinkSpec
from penstock.sinks.stores.two_phase.gid import PREFIX, Gid, short

if TYPE_CHECKING:
    from penstock.sinks.stores.two_phase.postgres import PostgresParticipant

KIND = "two_phase"
_NOW = "now: penstock doctor --resolve"
_HELD = "it holds its locks until it is finished"


@dataclass(frozen=True)
class Sink:
    """A sink over several databases, as a start of its flow has recorded it."""

    flow: str
    name: str
    databases: tuple[tuple[str, str, str | None], ...]  # URL, table, and where the password is

    @property
    def called(self) -> str:
        return f"flow {self.flow}, sink {KIND}.{self.name}"

    def participants(self, stack: ExitStack) -> "list[PostgresParticipant]":
        """Connected until the stack is left; SinkUnavailable if one of them is away."""
        from penstock.sinks.stores.sql.postgres import PostgresDefinition
        from penstock.sinks.stores.two_phase.postgres import PostgresParticipant

        spec = SinkSpec(self.flow, self.name, Schema.of("nothing string"), ())
        found = [
            PostgresParticipant(PostgresDefinition(url, table, None, password), spec) for url, table, password in self.databases
        ]
        for each in found:
            stack.callback(each.close)
            each.connect()
        return found


def sinks_over_several(decisions: Decisions) -> list[Sink]:
    """Of all starts that are remembered, the last one first: one that has since lost a database, or its name, is there too."""
    outputs = [output for start in decisions.starts() for output in start.get("outputs") or ()]
    found = [_sink(decisions.flow, output) for output in outputs if output["kind"] == KIND and "databases" in output]
    return list(dict.fromkeys(found))


def _sink(flow: str, output: dict[str, Any]) -> Sink:
    databases = tuple((each["url"], each["table"], each["password"]) for each in output["databases"])
    return Sink(flow, output["id"].removeprefix(f"{KIND}."), databases)


def left_prepared(home: Path, resolve: bool = False) -> Iterator[Finding]:
    """What doctor says of them. resolve: those of flows of this home that do not run are finished."""
    every = [decisions_of(home, flow) for flow in flows(home)]
    known = {sink: decisions for decisions in every for sink in sinks_over_several(decisions)}
    told: set[str] = set()
    for sink, decisions in known.items():
        try:
            with ExitStack() as stack:
                participants = sink.participants(stack)
                yield from _of_sink(sink, decisions, participants, resolve)
                for each in participants:
                    yield from _of_others(each, [*known], told)
        except PenstockError as error:
            yield Finding("warn", f"{sink.called}: what is prepared there cannot be told: {error.what}", error.hint)


def finished(home: Path, flow: str) -> Iterator[Finding]:
    """Finishes what the sinks of one flow have left prepared, before the flow forgets where that is."""
    decisions = decisions_of(home, flow)
    for sink in sinks_over_several(decisions):
        try:
            with ExitStack() as stack:
                yield from _of_sink(sink, decisions, sink.participants(stack), resolve=True)
        except Held:
            raise
        except PenstockError as error:
            look = f"look there, and finish it: SELECT * FROM pg_prepared_xacts WHERE gid LIKE '{PREFIX}{short(flow)}:%'"
            yield Finding("warn", f"{sink.called}: what is prepared there cannot be told, and stays: {error.what}", look)


def _of_sink(sink: Sink, decisions: Decisions, participants: "list[PostgresParticipant]", resolve: bool) -> Iterator[Finding]:
    from penstock.sinks.stores.two_phase.resolving import resolve as finish

    left = [(each, gid) for each in participants for gid in each.prepared()]
    if not left:
        return
    running = runs(decisions)
    if resolve and not running:
        with ExitStack() as stack:
            stack.push(held_lock(decisions).__exit__)
            for done in finish(participants, lambda attempt: None):
                how = "committed" if done.committed else "rolled back: not all databases had it"
                yield Finding("ok", f"{sink.called}: epoch {done.gid.attempt.epoch} in {done.called} was {how}")
        return
    for each, gid in left:
        what = f"{sink.called}: epoch {gid.attempt.epoch} stands prepared in {each.called} for {_age(each, gid)}"
        if running:
            yield Finding("ok", f"{what}; the flow is running, and finishes it")
        elif gid.attempt.incarnation == life_of(decisions):
            yield Finding("warn", what, f"the next start of the flow finishes it; {_NOW}")
        else:
            yield Finding("bad", f"{what}, from an earlier life of the flow: no start finishes it", f"{_HELD}; {_NOW}")


def _of_others(each: "PostgresParticipant", known: Sequence[Sink], told: set[str]) -> Iterator[Finding]:
    """Those of flows that are not in this home, in any database of the server."""
    here = {(short(sink.flow), short(sink.name)) for sink in known}
    for left in each.left():
        place = f"{each.server}: {left.gid}"
        if (left.gid.flow, left.gid.sink) in here or place in told:
            continue
        told.add(place)
        whose = f"flow {left.gid.flow}, sink {KIND}.{left.gid.sink}: no flow of this home"
        what = f"{whose} has left epoch {left.gid.attempt.epoch} prepared in database {left.database} of {each.server}"
        hint = f"{_HELD}; another home may finish it. If there is none: ROLLBACK PREPARED '{left.gid}' in that database"
        yield Finding("warn", f"{what}, for {_words(left.age)}", hint)


def life_of(decisions: Decisions) -> str:
    """The incarnation of a flow; "" where it has none."""
    try:
        return decisions.storage.read("incarnation").to_pybytes().decode(errors="replace").strip()
    except NotFound:
        return ""


def _age(each: "PostgresParticipant", gid: Gid) -> str:
    return _words(next((left.age for left in each.left(str(gid))), timedelta()))


def _words(age: timedelta) -> str:
    return duration_text(timedelta(seconds=round(age.total_seconds())))
