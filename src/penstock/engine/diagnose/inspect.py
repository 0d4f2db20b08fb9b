"""Looking at flows from outside: open windows, books, health. Reads what is on disk and needs no Spark."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from penstock.core.schema import Schema
from penstock.engine.diagnose.describe import decode
from penstock.engine.execute.program import Program
from penstock.engine.run.epoch.decision import Decision, Decisions
from penstock.engine.run.progress import unaccounted
from penstock.engine.state.runs import load_state, read_run
from penstock.errors import NotFound, PenstockError
from penstock.kernels.port import Kernel
from penstock.kernels.registry import kernel_of
from penstock.storage.local import LocalStorage
from penstock.storage.port import Storage
from penstock.storage.sealed import read_sealed


class Finding(NamedTuple):
    level: Literal["ok", "warn", "bad"]
    what: str
    hint: str | None = None


def flows(home: Path) -> list[str]:
    directory = home / "flows"
    return sorted(p.name for p in directory.iterdir() if p.is_dir()) if directory.is_dir() else []


def decisions_of(home: Path, flow: str) -> Decisions:
    if flow not in flows(home):
        raise NotFound(f"no flow {flow!r} has run here", f"flows here: {', '.join(flows(home)) or 'none'}")
    return Decisions(LocalStorage(str(home / "flows" / flow)), flow)


def open_rows(home: Path, view: str) -> pa.Table | None:
    """Windows not yet closed of the step that a view shows; None if it shows no window."""
    for flow in flows(home):
        decisions = decisions_of(home, flow)
        steps: list[dict[str, Any]] = decisions.owner().get("steps", [])
        for step in steps:
            if view in step["views"]:
                ports = [port["name"] for port in step["ports"]]
                return _open(_kernel(step), decisions.storage, decisions.last(), step["name"], ports)
    return None


def open_rows_of(program: Program, storage: Storage, last: Decision | None, step: str) -> pa.Table | None:
    return _open(program.kernels[step], storage, last, step, program.plan.step(step).inputs)


def kernel_of_step(decisions: Decisions, step: str) -> Kernel | None:
    """The kernel of a step, made from what the last start of the flow left; None where that was not enough."""
    found: list[dict[str, Any]] = decisions.owner().get("steps", [])
    return next((_kernel(described) for described in found if described["name"] == step), None)


def _kernel(step: Mapping[str, Any]) -> Kernel:
    definition = decode(step["definition"])
    inputs = [Schema.of(port["schema"]).arrow for port in step["ports"]]
    return kernel_of(definition, inputs, Schema.of(step["output"]).arrow)


def _open(kernel: Kernel, storage: Storage, last: Decision | None, step: str, ports: Sequence[str]) -> pa.Table | None:
    tables = []
    for bucket in range(last.buckets if last else 0):
        assert last
        refs = [r for r in last.state if (r.step, r.bucket) == (step, bucket)]
        rows = kernel.open_rows(load_state(storage, refs, tuple(last.frontiers[port] for port in ports)))
        if rows is not None and rows.num_rows:
            tables.append(rows)
    return pa.concat_tables(tables) if tables else None


def health(home: Path) -> list[Finding]:
    """What doctor says of the flows here."""
    return [finding for flow in flows(home) for finding in _flow_health(home, flow)]


def _accounts(last: Decision) -> str:
    """What its sources have read, for people."""
    total = Counter[str]()
    for account in last.accounts.values():
        total.update(account)
    absent = total["marks"] + total["absent"]
    return f", {total['offsets']:,} offsets read, {absent:,} of them without a row" if total else ""


def _flow_health(home: Path, flow: str) -> Iterator[Finding]:
    try:
        decisions = decisions_of(home, flow)
        last = decisions.last()
        if last is None:
            yield Finding("ok", f"flow {flow}: nothing decided yet")
            return
        for ref in last.state:
            read_run(decisions.storage, ref)
        for staged in last.staged:
            read_sealed(decisions.storage, staged.file)
        yield Finding("ok", f"flow {flow}: epoch {last.epoch} decided, {len(last.state)} runs of state readable{_accounts(last)}")
        for source, why in unaccounted(last).items():
            yield Finding("bad", f"flow {flow}: the books of its source {source} do not balance: {why}", "please report it")
    except NotFound as error:
        yield Finding(
            "bad",
            f"flow {flow}: {error.what}",
            f"restore the flow's directory from a copy, or start the flow over: penstock flow reset {flow}",
        )
    except PenstockError as error:
        yield Finding("bad", f"flow {flow}: {error.what}", error.hint)
