"""Puts a driver together: sinks for the outputs of a plan, and where things are in a home."""

from collections.abc import Callable
from pathlib import Path

from penstock.engine.execute.program import DEAD, LATE, Program, dead_schema, late_schema
from penstock.engine.run.context import Fail
from penstock.engine.run.epoch.deliver import Target
from penstock.engine.run.letters import LetterSink, RefusedRows, letter_topic
from penstock.flow.place import Place
from penstock.log.port import Log
from penstock.plan import Output
from penstock.sinks.port import Sink, SinkContext, SinkSpec, nothing
from penstock.sinks.stores.definition import StoreDefinition
from penstock.sinks.stores.two_phase.definition import TwoPhaseDefinition
from penstock.storage.port import Storage


def targets(log: Log, storage: Storage, views: Path, fail: Fail = nothing) -> Callable[[Program], list[Target]]:
    """The sinks of a program: its outputs, and its own topics for late and dead rows."""

    def make(program: Program) -> list[Target]:
        plan = program.plan
        sinks = {o: _sink(program, o, log, storage, views, fail) for o in plan.outputs}
        outputs = [_target(o, sink) for o, sink in sinks.items()]
        return outputs + [_letters(plan.flow, kind, log, storage) for kind in (LATE, DEAD)]

    return make


def _target(output: Output, sink: Sink) -> Target:
    definition = output.definition
    store = isinstance(definition, StoreDefinition | TwoPhaseDefinition)
    return Target(output.id, sink, output.input, definition.sparse, definition.apart, store)


def _sink(program: Program, output: Output, log: Log, storage: Storage, views: Path, fail: Fail) -> Sink:
    refused = RefusedRows(program.plan.flow, output.id, log)
    with Place(program.plan.flow, output.origin).located():
        return output.definition.build(SinkContext(spec_of(program, output), log, storage, views, fail, refused))


def spec_of(program: Program, output: Output) -> SinkSpec:
    """What a sink knows of its rows."""
    step = program.plan.step(output.input)
    once = not step.updating and step.node.once() == frozenset(output.key)
    ordered = output.definition.ordered and step.name in program.ordered
    return SinkSpec(program.plan.flow, output.name, step.schema, output.key, step.updating, ordered, unique=once)


def _letters(flow: str, kind: str, log: Log, storage: Storage) -> Target:
    name, schema = letter_topic(flow, kind), dead_schema() if kind == DEAD else late_schema()
    return Target(kind, LetterSink(SinkSpec(flow, name, schema, ()), log, name, storage), None, lenient=True)
