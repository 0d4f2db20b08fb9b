"""The sinks of flows, from outside: how far each has come, and what keeps it away."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from penstock.core.time import instant, micros
from penstock.engine.diagnose.inspect import decisions_of, flows
from penstock.engine.run.epoch.decision import Decisions
from penstock.engine.run.epoch.history import records
from penstock.engine.run.epoch.sink_status import last_told
from penstock.errors import NotFound

State = Literal["in step", "behind", "away", "nothing yet"]


@dataclass(frozen=True)
class SinkState:
    """One sink of one flow."""

    flow: str
    sink: str
    target: str
    state: State
    epoch: int  # the last one that it has, as far as is known from outside; -1: none
    behind_epochs: int
    behind_seconds: float
    cause: str | None  # what keeps it away


def sinks_of(home: Path, flow: str | None = None) -> list[SinkState]:
    """Of one flow, or of all."""
    names = [flow] if flow else flows(home)
    return [state for name in names for state in _states(decisions_of(home, name))]


def sink_of(home: Path, flow: str, sink: str) -> SinkState:
    """By its whole name or by what it writes; NotFound says which there are."""
    found = sinks_of(home, flow)
    for state in found:
        if sink in (state.sink, state.target):
            return state
    there = ", ".join(state.sink for state in found) or "none"
    raise NotFound(f"flow {flow} has no sink {sink!r}", f"its sinks: {there}", hint="penstock sink list")


def _states(decisions: Decisions) -> list[SinkState]:
    last, clocks = decisions.last(), {record["epoch"]: record["clock"] for record in records(decisions.storage)}
    out = []
    for output in decisions.owner().get("outputs") or ():
        sink = output.get("id") or f"{output['kind']}.{output['name']}"
        told = last_told(decisions.storage, sink)
        out.append(_state(decisions.flow, sink, output["name"], last.epoch if last else -1, told, clocks))
    return out


def _state(flow: str, sink: str, target: str, last: int, told: dict[str, Any], clocks: dict[int, str]) -> SinkState:
    epoch = told.get("delivered", -1)
    behind = max(0, last - epoch)
    away = told.get("away") if behind else None
    state: State = "nothing yet" if last < 0 else "away" if away else "behind" if behind else "in step"
    return SinkState(flow, sink, target, state, epoch, behind, _seconds(clocks, epoch, last) if behind else 0.0, away)


def _seconds(clocks: dict[int, str], epoch: int, last: int) -> float:
    """Between the opening of the first epoch that it lacks and that of the last one."""
    first, newest = clocks.get(epoch + 1), clocks.get(last)
    return (micros(instant(newest)) - micros(instant(first))) / 1e6 if first and newest else 0.0
