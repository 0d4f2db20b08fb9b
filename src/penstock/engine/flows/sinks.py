"""The sinks of flows, from outside: how far each has come, and what keeps it away."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from penstock.core.time import instant, micros
from penstock.engine.diagnose.inspect import Finding, decisions_of, flows
from penstock.engine.run.epoch.decision import Decisions
from penstock.engine.run.epoch.history import records
from penstock.engine.run.epoch.sink_status import last_told
from penstock.errors import NotFound, PenstockError

_FAR = 100  # epochs that a sink may lack before doctor speaks of it
_PATIENCE = "it gets them when it is back, while the flow runs; `penstock sink list` shows how far it is"
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
    hint: str | None = None  # what to do about that


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


def behind(home: Path) -> Iterator[Finding]:
    """What doctor says of the sinks of each flow; of a flow that cannot be read it says so itself."""
    for flow in flows(home):
        with suppress(PenstockError):
            storage = decisions_of(home, flow).storage
            found = [state for state in sinks_of(home, flow) if last_told(storage, state.sink)]
            lag = [state for state in found if state.state == "away" or state.behind_epochs > _FAR]
            yield from map(_told, lag)
            if len(lag) < len(found):
                yield Finding("ok", f"flow {flow}: {len(found) - len(lag)} of {len(found)} sinks in step")


def _told(state: SinkState) -> Finding:
    lacks = f"it lacks {state.behind_epochs:,} epoch{'s' if state.behind_epochs > 1 else ''}"
    if state.state == "away":
        what = f"flow {state.flow}: sink {state.sink} is away, {lacks}: {state.cause}"
        return Finding("warn", what, state.hint or _PATIENCE)
    what = f"flow {state.flow}: sink {state.sink} is far behind, {lacks}, {state.behind_seconds:,.0f} seconds"
    return Finding("warn", what, "it gets them while the flow runs; is the store slower than the flow?")


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
    away, hint = (told.get("away"), told.get("hint")) if behind else (None, None)
    state: State = "nothing yet" if last < 0 else "away" if away else "behind" if behind else "in step"
    return SinkState(flow, sink, target, state, epoch, behind, _seconds(clocks, epoch, last) if behind else 0.0, away, hint)


def _seconds(clocks: dict[int, str], epoch: int, last: int) -> float:
    """Between the opening of the first epoch that it lacks and that of the last one."""
    first, newest = clocks.get(epoch + 1), clocks.get(last)
    return (micros(instant(newest)) - micros(instant(first))) / 1e6 if first and newest else 0.0
