"""Puts a driver together: sinks for the outputs of a plan, and where things are in a home."""

from collections.abc import Callable
from pathlib import Path

from penstock.engine.delivery import Target
from penstock.engine.epoch import Fail, nothing
from penstock.engine.letters import LetterSink
from penstock.engine.program import DEAD, LATE, Program, late_schema, sink_id
from penstock.flow.plan import Output, Plan
from penstock.log.port import Log
from penstock.sinks.port import Sink, SinkSpec
from penstock.sinks.topic import TopicSink
from penstock.sinks.view import ViewSink
from penstock.storage.port import Storage


def targets(log: Log, storage: Storage, views: Path, fail: Fail = nothing) -> Callable[[Program], list[Target]]:
    """The sinks of a program: its outputs, and its own topics for late and dead rows."""

    def make(program: Program) -> list[Target]:
        plan = program.plan
        outputs = [Target(sink_id(o), _sink(plan, o, log, storage, views, fail), o.input, o.kind == "topic") for o in plan.outputs]
        return outputs + [_letters(plan.flow, kind, log, storage) for kind in (LATE, DEAD)]

    return make


def _sink(plan: Plan, output: Output, log: Log, storage: Storage, views: Path, fail: Fail) -> Sink:
    step = plan.step(output.input)
    spec = SinkSpec(plan.flow, output.name, step.schema, output.key if output.kind == "view" else (), step.updating)
    if output.kind == "view":
        return ViewSink(spec, views / f"{output.name}.db", storage, fail)
    return TopicSink(spec, log, output.name, output.partitions, output.key, storage, fail)


def _letters(flow: str, kind: str, log: Log, storage: Storage) -> Target:
    name = letter_topic(flow, kind)
    return Target(kind, LetterSink(SinkSpec(flow, name, late_schema(), ()), log, name, storage), None, lenient=True)


def letter_topic(flow: str, kind: str) -> str:
    """shop.late, shop.dead"""
    return f"{flow}.{kind.removeprefix('letters.')}"
