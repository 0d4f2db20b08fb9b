"""A plan made ready to run: which kernel each keyed step has, who reads whom, and where the graph is cut.

A step has a place (segment, level). Level 0 of a segment is where rows come in (from the log, or from files of the segment before);
each keyed step lies one level behind its inputs, and a level is where its buckets are. A step that Spark SQL must evaluate ends a
segment: its rows go through the JVM, and what follows it starts in the next one. So does what follows a lookup: its answers go
through files, so that a task that runs again finds the ones that were given.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from penstock.core.schema import Schema
from penstock.core.time import micros
from penstock.engine.execute.ordering import in_log_order, wanted_in_order
from penstock.engine.source.spec import SourceSpec
from penstock.kernels.aggregates.own import Own, own_of, tolerant
from penstock.kernels.port import Kernel, position_needed
from penstock.kernels.registry import kernel_of
from penstock.log.port import Topic
from penstock.plan import Node, Plan, Step
from penstock.plan.meaning import fingerprint
from penstock.sinks.letters import dead_schema as dead_schema

_WHERE = "topic string, partition int, offset long, time timestamp, watermark timestamp"
LATE, DEAD = "letters.late", "letters.dead"  # the flow's own topics, as sinks


@dataclass(frozen=True)
class Place:
    segment: int
    level: int


@dataclass(frozen=True)
class Reader:
    """Somebody who takes the rows of a step."""

    kind: str  # step, late, keyed, sql, output, carry
    name: str
    port: int = 0


@dataclass(frozen=True)
class Program:
    plan: Plan
    sources: Mapping[str, SourceSpec]
    kernels: Mapping[str, Kernel]
    places: Mapping[str, Place]
    readers: Mapping[str, tuple[Reader, ...]]
    late_sink: frozenset[str] = field(default_factory=frozenset)  # judging steps whose late rows go to the flow's own topic
    ordered: frozenset[str] = field(default_factory=frozenset)  # steps whose rows carry ADDRESS, for a topic that keeps their order

    @cached_property
    def own(self) -> dict[str, tuple[Own, ...]]:
        """The user's own aggregates, of the steps whose rows are tried with them before anything is made of them."""
        return {s.name: own for s in self.plan.steps if s.on_error != "null" and (own := own_of(s.node.aggregated()))}

    @cached_property
    def results(self) -> frozenset[str]:
        """Steps with own aggregates whose result is worked out by a function, which may fail."""
        return frozenset(s.name for s in self.plan.steps if any(own.has_result for own in own_of(s.node.aggregated())))

    @cached_property
    def early(self) -> dict[str, int]:
        """Steps that show open windows every so many microseconds."""
        found = {s.name: s.node.shows_early() for s in self.plan.steps}
        return {name: micros(span) for name, span in found.items() if span}

    @cached_property
    def answering(self) -> dict[str, frozenset[str]]:
        """Steps that answer rows from versions of a table, and the sources that these come from."""
        return {s.name: self.above(s.inputs[1]) for s in self.plan.steps if s.node.answers_rows}

    def above(self, step: str) -> frozenset[str]:
        """The sources that a step reads, itself or through others."""
        if step in self.sources:
            return frozenset([step])
        return frozenset().union(*(self.above(i) for i in self.plan.step(step).inputs))

    @property
    def segments(self) -> int:
        return 1 + max(p.segment for p in self.places.values())

    def depth(self, segment: int) -> int:
        """The highest level of a segment."""
        return max((p.level for p in self.places.values() if p.segment == segment), default=0)

    def keyed(self, segment: int, level: int) -> list[str]:
        return [name for name in self.kernels if self.places[name] == Place(segment, level)]

    def frontiers(self, sources: Mapping[str, int]) -> dict[str, int]:
        """F out of every step, from the frontiers of the sources alone."""
        out: dict[str, int] = {}
        for step in self.plan.steps:
            inputs = [out[i] for i in self.plan.feeds(step)]
            if step.name in self.sources:
                out[step.name] = sources[step.name]
            elif step.name in self.kernels:
                out[step.name] = self.kernels[step.name].frontier(inputs)
            else:
                out[step.name] = min(inputs)
        return out

    def fingerprint(self) -> str:
        """Changes when the meaning of the steps does."""
        return fingerprint(self.plan)


def lower(plan: Plan, topics: Mapping[str, Topic | None]) -> Program:
    """The program of a plan, over topics as they are now (None: not there yet)."""
    places = _places(plan)
    readers = _readers(plan, places)
    sources = {
        name: SourceSpec.of(name, source, plan.step(name).schema, topics.get(source.topic)) for name, source in plan.sources.items()
    }
    kernels = {
        s.name: kernel_of(_as_read(s, sources), [plan.step(i).schema.arrow for i in s.inputs], s.schema.arrow)
        for s in plan.steps
        if s.keyed
    }
    for name, kernel in reversed(kernels.items()):  # what a step needs may follow from what it has to give
        kernel.gives_position = _position_wanted(name, plan, kernels, places, readers)
    tapped = {s.inputs[0] for s in plan.steps if s.node.tap is not None}
    late_sink = frozenset(s.name for s in plan.steps if s.diverts and s.name not in tapped)
    ordered = wanted_in_order(plan, in_log_order(plan, kernels), late_sink)
    return Program(plan, sources, kernels, places, readers, late_sink, ordered)


def _as_read(step: Step, sources: Mapping[str, SourceSpec]) -> Node:
    """What a keyed step does; of a table over a topic that a flow writes, the last record of a key holds where the topic is a
    changelog, or stands in the order of that flow's input."""
    node, above = _tolerant(step), sources.get(step.inputs[0])
    return node.over_ordered() if above and above.versions and (above.changelog or above.ordered) else node


def result_step(step: str) -> str:
    """How the results of a step's own aggregates are called in the books and in letters."""
    return f"{step}.result"


def _tolerant(step: Step) -> Node:
    """What a keyed step does; under on_error="null" its own aggregates pass over rows that they cannot add."""
    if step.on_error != "null" or not own_of(step.node.aggregated()):
        return step.node
    return step.node.aggregating(tolerant(step.node.aggregated()))


def _places(plan: Plan) -> dict[str, Place]:
    places: dict[str, Place] = {}
    for step in plan.steps:
        sql, tap = step.node.needs_sql, step.node.tap
        if tap is not None:
            places[step.name] = _late_place(plan, step.inputs[0], tap, places)
            continue
        before = [places[i] if sql else _behind(plan.step(i), places[i]) for i in step.inputs]
        segment = max((p.segment for p in before), default=0)
        level = max((p.level for p in before if p.segment == segment), default=0)
        if sql:
            places[step.name] = Place(segment + 1, 0)
        elif step.keyed:
            places[step.name] = Place(segment, level + 1)
        else:
            places[step.name] = Place(segment, level)
    return places


def _late_place(plan: Plan, judging: str, port: int, places: Mapping[str, Place]) -> Place:
    """Late rows come out where their step takes its input up: where that is, or at the start of the segment of the step."""
    above, segment = plan.step(plan.step(judging).inputs[port]), places[judging].segment
    taken_up = _behind(above, places[above.name])
    return taken_up if taken_up.segment == segment else Place(segment, 0)


def _behind(step: Step, place: Place) -> Place:
    """Where the rows of a step are taken up."""
    return Place(place.segment + 1, 0) if step.node.staged else place


def _readers(plan: Plan, places: Mapping[str, Place]) -> dict[str, tuple[Reader, ...]]:
    readers: dict[str, list[Reader]] = {s.name: [] for s in plan.steps}
    for step in plan.steps:
        tap = step.node.tap
        kind = "late" if tap is not None else "sql" if step.node.needs_sql else "keyed" if step.keyed else "step"
        for port, name in enumerate(step.inputs):
            readers[name].append(Reader(kind, step.name, port if tap is None else tap))
    for output in plan.outputs:
        readers[output.input].append(Reader("output", output.id))
    return {name: tuple(r) for name, r in readers.items()}


def _position_wanted(
    name: str, plan: Plan, kernels: Mapping[str, Kernel], places: Mapping[str, Place], readers: Mapping[str, tuple[Reader, ...]]
) -> bool:
    """Whether anybody behind this step reads where its rows come from."""
    for reader in readers[name]:
        if reader.kind in ("output", "sql"):
            return True
        if reader.kind == "late":
            continue  # rows that never got into this step
        if places[reader.name].segment > places[name].segment:
            return True
        if reader.kind == "keyed" and (
            position_needed(kernels[reader.name], reader.port) or own_of(plan.step(reader.name).node.aggregated())
        ):
            return True
        if reader.kind == "step" and plan.step(reader.name).node.needs_position:
            return True
        if reader.kind == "step" and _position_wanted(reader.name, plan, kernels, places, readers):
            return True
    return False


def late_schema() -> Schema:
    """The columns of a flow's own late topic."""
    return Schema.of(f"step string, reason string, {_WHERE}, row string")
