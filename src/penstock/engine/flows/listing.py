"""Every flow of a home: who runs it, how far it has come, what it writes; and one of them in full."""

import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from penstock.core.time import FOREVER, NEVER, text
from penstock.engine.diagnose.inspect import decisions_of, flows
from penstock.engine.flows.belongings import belongings, recorded, size_of
from penstock.engine.flows.ending import drained
from penstock.engine.run.epoch.decision import Decision, Decisions
from penstock.engine.run.progress import balance
from penstock.errors import Damaged, NotFound, PenstockError
from penstock.log.port import Log

State = Literal["running", "stopped", "ended", "never decided", "half removed", "damaged"]


@dataclass(frozen=True)
class Listed:
    """One flow, in a line."""

    flow: str
    state: State
    by: str | None  # who runs it, or ran it last
    epochs: int  # decided since its beginning
    last: str | None  # when its last epoch was opened
    outputs: tuple[str, ...]
    bytes: int  # of its directory

    @property
    def line(self) -> dict[str, Any]:
        """For people and programs alike."""
        return {**vars(self), "outputs": ", ".join(self.outputs)}


def listed(home: Path) -> list[Listed]:
    """All flows, by name."""
    return [one(decisions_of(home, flow), home) for flow in flows(home)]


def one(decisions: Decisions, home: Path) -> Listed:
    """A flow as it is now; it may run meanwhile."""
    state, last = _state(decisions)
    owner = decisions.owner()
    by = f"process {owner['pid']} on {owner['host']} since {owner['since']}" if owner.get("pid") else None
    outputs = tuple(f"{out['kind']} {out['name']}" for out in owner.get("outputs") or ())
    epochs, clock = (last.epoch + 1, text(last.clock)) if last else (0, None)
    return Listed(decisions.flow, state, by, epochs, clock, outputs, size_of(home / "flows" / decisions.flow))


def _state(decisions: Decisions) -> tuple[State, Decision | None]:
    try:
        if decisions.removing():
            return "half removed", None
        last = decisions.last()
        if runs(decisions):
            return "running", last
        return ("never decided" if last is None else "ended" if drained(decisions, last) else "stopped"), last
    except PenstockError:
        return "damaged", None


def runs(decisions: Decisions) -> bool:
    """Whether somebody has the flow now. Where it can be told otherwise the lock is not tried: a start at that moment would find
    it taken."""
    owner = decisions.owner()
    if not owner.get("pid"):
        return False
    if owner.get("host") == socket.gethostname() and not _alive(int(owner["pid"])):
        return False
    try:
        with decisions.storage.lock("lock", wait=False) as free:
            return not free
    except PenstockError:  # such as in a home that cannot be written to
        return False


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@dataclass(frozen=True)
class Described:
    """One flow in full: lines of what it is, what it reads, writes and keeps, and what became of its rows."""

    facts: Mapping[str, Any]
    steps: list[dict[str, Any]]
    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]
    books: list[dict[str, Any]]


def described(home: Path, log: Log, flow: str) -> Described:
    decisions = decisions_of(home, flow)
    line = one(decisions, home)
    last = decisions.last() if line.state not in ("half removed", "damaged") else None
    facts = {name: value for name, value in line.line.items() if name != "outputs"}
    if last:
        facts |= {"incarnation": last.incarnation, "generation": last.generation, "buckets": last.buckets}
        facts |= {"kept_epochs": len(decisions.epochs()), "log": recorded(decisions, "log") or "of the home"}
    outputs = [{"kind": b.kind, "name": b.name, "rows": b.rows, "bytes": b.bytes} for b in belongings(home, log, flow)]
    return Described(facts, list(_steps(decisions, last)), list(_inputs(decisions, last, log)), outputs, list(_books(last)))


def _steps(decisions: Decisions, last: Decision | None) -> Iterator[dict[str, Any]]:
    """What the newest start has told of them, with what they keep now."""
    owner = decisions.owner()
    holders: Mapping[str, Any] = owner.get("holders") or {}
    names = owner.get("names") or list(last.frontiers if last else holders)
    for name in names:
        kept = [ref for ref in last.state if ref.step == name] if last else []
        known = holders.get(name, {})
        key = ", ".join(next(iter(known.get("keys", ())), ()))
        frontier = last.frontiers.get(name, NEVER) if last else NEVER
        yield {"step": name, "what": known.get("what"), "key": key or None} | {
            "time": time_text(frontier),
            "state_rows": sum(ref.rows for ref in kept),
            "state_files": len({ref.file for ref in kept}),
        }


def _inputs(decisions: Decisions, last: Decision | None, log: Log) -> Iterator[dict[str, Any]]:
    topics: Mapping[str, str] = recorded(decisions, "sources") or {}
    for step, source in (last.sources if last else {}).items():
        topic = topics.get(step, step)
        ends = _ends(log, topic, source.topic_id)
        for number, p in sorted(source.partitions.items()):
            end = ends.get(number)
            yield {"step": step, "topic": topic, "partition": number, "next": p.next, "end": end} | {
                "behind": None if end is None else end - p.next,
                "watermark": time_text(p.watermark),
            }


def _ends(log: Log, topic: str, id: str) -> dict[int, int]:
    """Where the topic ends now; nothing where it is another one by now, or none, such as a static table."""
    try:
        found = log.topic(topic)
        return {number: end.next for number, end in found.ends().items()} if found.id == id else {}
    except (NotFound, Damaged):
        return {}


def _books(last: Decision | None) -> Iterator[dict[str, Any]]:
    for step, rows, known in balance(last.fates if last else {}):
        yield {"step": step, "rows_in": rows, "accounted": known, "balances": rows == known}


def time_text(us: int) -> str | None:
    return None if us <= NEVER else "+∞ (ended)" if us >= FOREVER else text(us)
