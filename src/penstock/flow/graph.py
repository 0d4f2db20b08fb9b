"""The graph that a flow is: nodes in the order they were written, and what they are written to."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.core import time as times
from penstock.core.names import check_name
from penstock.core.schema import Schema
from penstock.flow import arguments
from penstock.flow.definition import Definition, Node
from penstock.flow.place import Place
from penstock.flow.steps.sources import StreamDefinition
from penstock.flow.steps.tables import Form, StaticDefinition, TableDefinition, static_name, static_of
from penstock.flow.stream import Stream
from penstock.plan import DEAD_LIMIT, ClockFix, Origin, SinkDefinition
from penstock.plan.origin import origin


@dataclass(frozen=True)
class Written:
    """A sink that takes the rows of a node."""

    definition: SinkDefinition
    name: str
    node: Node
    origin: Origin

    @property
    def kind(self) -> str:
        return self.definition.kind

    @property
    def topic(self) -> str | None:
        return self.definition.topic


class FlowGraph:
    """A flow as it is described: building it touches no file, no clock and no JVM."""

    def __init__(self, name: str, log: str | None = None, *, dead_limit: float | None = DEAD_LIMIT) -> None:
        """log: the URL of the log it reads and writes. dead_limit: the flow stops when more than this share of the rows of a step,
        and at least 1,000 of them, fail; None: never."""
        self.name = check_name(name, "flow")
        self.log = log
        self.dead_limit = None if dead_limit is None else arguments.number(dead_limit, 0.0, 1.0, "dead_limit")
        self.origin = origin()
        self.nodes: list[Node] = []
        self.outputs: list[Written] = []
        self.names: dict[Node, str] = {}

    def stream(
        self,
        topic: str,
        schema: str | Schema | pa.Schema | type,
        *,
        time: str | None = None,
        lateness: str | timedelta | None = None,
        idle: str | timedelta = "30 seconds",
        delay: str | timedelta | None = None,
        append_time: str | None = None,
        key: str | Iterable[str] | None = None,
        name: str | None = None,
    ) -> Stream:
        """A topic as a stream of rows.

        `time` names the column that says when a row happened, `lateness` how much later than a newer row it may come; both are
        needed as soon as a step below judges rows (windows, joins). `time="append"` takes the time at which the log took the
        record; then nothing needs to be waited for. A topic that a flow writes brings its own time: leave both out.
        A partition idle for longer than `idle` holds nothing up. With `delay` time passes though nothing arrives: read to its
        end, the stream has come to the clock less `delay`. `append_time` names a column to be added: when the log took the
        record. `key` names the columns of the record's key."""
        with self.here().located():
            definition = StreamDefinition(
                check_name(topic),
                Schema.of(schema),
                time,
                None if lateness is None else times.duration(lateness, "lateness"),
                times.duration(idle, "idle"),
                columns_of(key),
                None if delay is None else times.duration(delay, "delay"),
                append_time,
            )
            return Stream(self, self._source(definition, name))

    def table(
        self,
        topic: str,
        schema: str | Schema | pa.Schema | type | None = None,
        *,
        key: str | Iterable[str] | None = None,
        time: str | None = None,
        changes: Form = "detect",
        op: str | None = None,
        name: str | None = None,
    ) -> Stream:
        """A topic of changes as a table: the current row of every key.

        `key` names the columns that tell rows apart; a newer record replaces the row of its key, a delete takes it out. `time`
        names the column from which on a version is valid (else the append time): older never overwrites newer. Records are rows,
        or Debezium's envelopes, which are recognised; `changes="rows"` or `"debezium"` settles it. `op` names a column that says
        insert, update or delete. A topic that a flow writes with changing rows is read like this too.

        Of a table that a capture follows the topic's name is enough: `flow.table("shop.public.users")`. Its columns and its key are
        those that the capture knows when the flow is checked, and a version is valid from its commit on."""
        with self.here().located():
            if changes not in ("detect", "rows", "debezium"):
                self.here().refuse(f"changes={changes!r} is not known", hint='use "rows" or "debezium"')
            declared = None if schema is None else Schema.of(schema)
            definition = TableDefinition(check_name(topic), declared, columns_of(key), time, changes, op)
            return Stream(self, self._source(definition, name))

    def static(
        self,
        rows: str | Path | Iterable[Mapping[str, Any]],
        schema: str | Schema | pa.Schema | type,
        *,
        key: str | Iterable[str],
        name: str | None = None,
    ) -> Stream:
        """A table that never changes: a CSV, Parquet or JSON lines file (`"countries.csv"`), or rows as dicts. It is read once,
        when the flow first runs, before anything else."""
        with self.here().located():
            declared = Schema.of(schema)
            called = static_name(rows, name)
            definition = StaticDefinition(called, static_of(rows, declared), declared, columns_of(key))
            return Stream(self, self._source(definition, None))

    def _source(self, definition: StreamDefinition | TableDefinition | StaticDefinition, name: str | None) -> Node:
        """One source for a topic, however often it is asked for under the same settings."""
        what = "table" if isinstance(definition, StaticDefinition) else "topic"
        for node in self.nodes:
            same = isinstance(node.definition, type(definition)) and node.definition.called == definition.called
            if not same or self.names.get(node) != name:
                continue
            if node.definition != definition:
                self.here().refuse(
                    f"{what} {definition.called!r} is read twice, under different settings",
                    f"the other one: {node.origin}",
                    hint="use the first one again, or name= this one",
                )
            return node
        return self.add(definition, (), name)

    def reread(self, node: Node, clock: ClockFix, name: str | None) -> Node:
        """The same topic, read with its clocks set right."""
        definition = node.definition
        doing = "cannot set clocks right here"
        if not isinstance(definition, StreamDefinition):
            what = f"{doing}: the rows have gone through {definition.kind!r} already"
            self.here().refuse(what, hint="it is done while rows are read: call clock_fix directly on flow.stream(…)")
        if definition.clock is not None:
            self.here().refuse(f"{doing}: it has been done already", f"the other one: {node.origin}", hint="leave one of them out")
        if definition.time is not None and definition.time.lower() != clock.happened.lower():
            what = f"{doing}: the stream is read by the time {definition.time!r}"
            self.here().refuse(what, hint="leave time= out: the corrected time is the time of the rows")
        fixed = self.shared(replace(definition, time=None, clock=clock), ())
        called = self.names.get(node) if name is None else name
        if called is not None:
            self.call(fixed, called)
        return fixed

    def add(self, definition: Definition, inputs: tuple[Node, ...], name: str | None = None) -> Node:
        """A new node; every verb of a stream ends here."""
        foreign = next((node for node in inputs if node not in self.nodes), None)
        if foreign:
            self.here().refuse(
                "cannot bring streams of two flows together",
                f"the other stream: {foreign.origin}",
                hint="write the one to a topic and read that in the other",
            )
        node = Node(definition, inputs, origin())
        self.nodes.append(node)
        if name is not None:
            self.call(node, name)
        return node

    def shared(self, definition: Definition, inputs: tuple[Node, ...]) -> Node:
        """The node with this definition over these inputs: the one that is there, or a new one."""
        there = (node for node in self.nodes if node.definition == definition and node.inputs == inputs)
        return next(there, None) or self.add(definition, inputs)

    def call(self, node: Node, name: str) -> None:
        """Gives a node its name, once."""
        with self.here().located():
            check_name(name, "step")
        before = self.names.setdefault(node, name)
        if before != name:
            self.here().refuse(f"cannot name a step {name!r}: it is already named {before!r}")

    def write(self, definition: SinkDefinition, node: Node, name: str | None = None) -> None:
        """Registers an output. name: what it is called in the flow, where that is not to be its target."""
        here, kind = self.here(), definition.kind
        called = definition.target if name is None else name
        with here.located():
            check_name(called, kind)
        twice = next((w for w in self.outputs if w.kind == kind and w.name == called), None)
        if twice:
            here.refuse(
                f"{kind} {called!r} is written twice",
                f"the other one: {twice.origin}",
                hint="bring the streams together with union first, or choose another name",
            )
        self.outputs.append(Written(definition, called, node, here.origin))

    def here(self) -> Place:
        """The line of the user's program that is running now."""
        return Place(self.name, origin())


def columns_of(given: str | Iterable[str] | None) -> tuple[str, ...]:
    """One column or several, as a user writes them."""
    if given is None:
        return ()
    return (given,) if isinstance(given, str) else tuple(given)
