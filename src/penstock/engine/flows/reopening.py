"""Lifts the end that `--drain` has put to the inputs of a flow: it goes on at a time behind all that the end has closed.

A decision of its own kind says so, with marks that hold from the next offset to be read: what the drain gave stays as it is, rows
that were read behind the end stay late, and what comes is judged behind a mark of that time (docs/adr/0010-reopening.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.core.time import FOREVER, NEVER
from penstock.engine.diagnose.inspect import decisions_of
from penstock.engine.flows.belongings import Belonging, belongings, recorded
from penstock.engine.flows.ending import drained
from penstock.engine.run.epoch.decision import Decision, Decisions, EngineMark, PartitionState, SourceState
from penstock.engine.run.epoch.history import keep_record
from penstock.engine.run.lock import held_lock, this_process
from penstock.engine.state.report import decided
from penstock.errors import BadInput, InUse, Mismatch
from penstock.log.port import Log


@dataclass(frozen=True)
class Reopening:
    """What lifting the end would mean."""

    flow: str
    time: int  # rows from here on are on time
    step: str | None  # whose windows reach that far
    ended: tuple[str, ...]  # inputs that their own writers have ended: these stay so
    promised: tuple[Belonging, ...]  # topics of the flow that hold the end for their readers


def plan(home: Path, log: Log, flow: str) -> Reopening:
    """What would happen; BadInput if the flow was not ended, Mismatch if it is not known how it could go on."""
    decisions = decisions_of(home, flow)
    noted = _horizon(decisions, decided(decisions))
    topics: Mapping[str, str] = recorded(decisions, "sources") or {}
    ended = {name for name, parts in noted["partitions"].items() if parts and min(parts.values()) >= FOREVER}
    if ended and ended == {name for name, parts in noted["partitions"].items() if parts}:
        raise BadInput(
            f"flow {flow} cannot go on: its inputs were ended by those who write them",
            f"topics: {', '.join(sorted(topics.get(name, name) for name in ended))}",
            hint="such a mark stays in the log; a flow that reads other topics can go on",
        )
    promised = tuple(thing for thing in belongings(home, log, flow) if thing.kind == "topic")
    topics_ended = tuple(sorted(topics.get(name, name) for name in ended))
    return Reopening(flow, int(noted["time"]), noted.get("step"), topics_ended, promised)


def _horizon(decisions: Decisions, last: Decision) -> Mapping[str, Any]:
    decisions.check_whole()
    if not drained(decisions, last):
        raise BadInput(f"the input of flow {decisions.flow} was not ended: there is nothing to lift", hint="penstock flow list")
    found: Mapping[str, Any] = last.horizon or recorded(decisions, "horizon") or {}
    if not found:
        raise Mismatch(
            f"it is not known from when on flow {decisions.flow} could go on",
            "it was ended by a version that did not note how far its windows reach",
            hint="run it once, which notes it (penstock run FLOW.py --catch-up), then reopen it",
        )
    return found


def carry_out(home: Path, log: Log, flow: str, force: bool = False) -> Decision:
    """Decides it. Held while the flow runs; InUse, without force, if the flow writes topics, in which the end stays."""
    found = plan(home, log, flow)
    if found.promised and not force:
        raise InUse(
            f"flow {flow} has told the readers of its topics that nothing more comes",
            *(f"topic {t.name}: {', '.join(t.readers) or 'nobody has read it yet'}" for t in found.promised),
            hint="that stays in the log: flows that judge by time will call late whatever comes behind it. --force goes on all the "
            f"same, for readers that do not; penstock flow reset {flow} makes the topics anew",
        )
    return reopen(decisions_of(home, flow))


def reopen(decisions: Decisions) -> Decision:
    """Takes the flow and decides an epoch without rows that lifts the end."""
    lock = held_lock(decisions)
    try:
        last = decided(decisions)
        noted = _horizon(decisions, last)
        generation = decisions.generation(decisions.owner() | this_process())
        decision = _decision(last, generation, noted)
        decisions.publish(decision)
        keep_record(decisions.storage, decision, 0.0, {}, 0)
        return decision
    finally:
        lock.__exit__(None, None, None)


def _decision(last: Decision, generation: int, noted: Mapping[str, Any]) -> Decision:
    at = int(noted["time"])
    lifted = {name: {int(n): int(time) for n, time in parts.items()} for name, parts in noted["partitions"].items()}
    sources = {name: _source(source, lifted.get(name, {}), at) for name, source in last.sources.items()}
    marks = [
        EngineMark(name, number, p.next, at, "", True)
        for name, source in last.sources.items()
        for number, p in source.partitions.items()
        if p.floor >= FOREVER
    ]
    return replace(
        last,
        epoch=last.epoch + 1,
        generation=generation,
        kind="reopen",
        sources=sources,
        ranges={},
        marks=tuple(marks),
        frontiers={**last.frontiers, **noted["frontiers"]},
        staged=(),
        rows=0,
        answered={**last.answered, **_answered(noted)},
        horizon={},
    )


def _answered(noted: Mapping[str, Any]) -> dict[str, int]:
    """The marks of answers: behind every row that was answered, so that no version that comes changes one of them."""
    return {step: mark + noted["allowed"][step] if mark > NEVER else mark for step, mark in noted["answered"].items()}


def _source(source: SourceState, lifted: Mapping[int, int], at: int) -> SourceState:
    partitions = {number: _partition(p, lifted.get(number, at), at) for number, p in source.partitions.items()}
    return replace(source, partitions=partitions, used=min((p.watermark for p in partitions.values()), default=source.used))


def _partition(p: PartitionState, watermark: int, at: int) -> PartitionState:
    return replace(p, floor=at, watermark=watermark) if p.floor >= FOREVER else p
