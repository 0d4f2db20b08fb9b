"""What a flow says about the topics it reads, held against what is known of them."""

from collections.abc import Callable, Mapping, Sequence

from penstock.core.schema import Schema, type_text
from penstock.flow.definition import Known, Node
from penstock.flow.facts import TopicFacts as TopicFacts
from penstock.flow.place import Place
from penstock.flow.steps.sources import StreamDefinition
from penstock.flow.steps.tables import TableDefinition

Suggest = Callable[[str, str], str | None]  # (topic, time column) -> a lateness that was measured


def check_topics(
    flow: str, nodes: Sequence[Node], known: Mapping[Node, Known], topics: Mapping[str, TopicFacts] | None, suggest: Suggest | None
) -> None:
    """Refuses sources without the time that a step below needs, or against the facts. `topics=None`: nothing is known."""
    judges = _judges(nodes, known)
    for node in nodes:
        if not isinstance(node.definition, StreamDefinition | TableDefinition):
            continue
        place = Place(flow, node.origin, known[node].name)
        facts = None if topics is None else topics.get(node.definition.topic, TopicFacts())
        if isinstance(node.definition, TableDefinition):
            _check_table(node.definition, facts, place)
            continue
        if facts and facts.changelog:
            place.refuse(
                f"cannot read {node.definition.topic} as a stream: a flow writes it, and its rows change",
                hint=f'read its current rows: flow.table("{node.definition.topic}", …, key=…)',
            )
        if facts and facts.schema:
            _check_schema(node.definition, facts.schema, place)
        if facts and facts.written_by_flow:
            _check_marked(node.definition, facts, place)
        elif node in judges:
            judge = known[judges[node]]
            _check_timed(node.definition, facts, f'step "{judge.name}" ({judge.step.origin})', place, suggest)


def _judges(nodes: Sequence[Node], known: Mapping[Node, Known]) -> dict[Node, Node]:
    """For each node above a judging step: the first such step."""
    above: dict[Node, Node] = {}
    for node in reversed(nodes):
        judge = node if node.definition.judges and known[node].judges else above.get(node)
        if judge:
            above |= dict.fromkeys(node.inputs, judge)
    return above


def _check_timed(source: StreamDefinition, facts: TopicFacts | None, judge: str, place: Place, suggest: Suggest | None) -> None:
    if not source.timed and (facts is not None or source.lateness is not None):
        times = [f.name for f in source.schema if type_text(f.type) == "timestamp"]
        example = f'e.g. time="{times[0]}"' if times else "a timestamp column that says when a row happened"
        place.refuse(
            f"cannot judge the rows of {source.topic}: no time",
            f"{judge} needs it",
            hint=f"name the column, {example}; only a topic that a flow has written brings its own",
        )
    if source.timed and source.waits is None:
        measured = suggest(source.topic, source.time) if suggest and source.time else None
        place.refuse(
            f"cannot judge the rows of {source.topic}: no lateness",
            f"{judge} needs it",
            hint=measured or 'say how much later than a newer row one may come, e.g. lateness="10 seconds"',
        )


def _check_marked(source: StreamDefinition, facts: TopicFacts, place: Place) -> None:
    """A topic written by a flow is read by its marks alone, under the time its rows were given."""
    if source.time is not None and source.time != facts.time:
        place.refuse(
            f"cannot read {source.topic} under time {source.time!r}: a flow wrote it and gave its rows their time",
            hint="leave time= and lateness= out",
        )
    if source.lateness is not None:
        place.refuse(
            f"cannot read {source.topic} with a lateness: a flow wrote it, and its marks say when time has passed",
            hint="leave time= and lateness= out",
        )
    for what, given in (("delay=", source.delay), ("clock_fix", source.clock)):
        if given is not None:
            place.refuse(
                f"cannot read {source.topic} with {what}: a flow wrote it and gave its rows their time",
                hint="say it where that flow reads the rows; its marks bring the time along",
            )


def _check_table(table: TableDefinition, facts: TopicFacts | None, place: Place) -> None:
    """Envelopes hold the declared columns inside; anything else is read as a stream is."""
    if facts and facts.schema and not (table.form != "rows" and "op" in facts.schema and "after" in facts.schema):
        _check_schema(table, facts.schema, place)
    if facts and facts.written_by_flow and table.time is not None and table.time != facts.time:
        place.refuse(
            f"cannot read {table.topic} under time {table.time!r}: a flow wrote it and gave its rows their time",
            hint="leave time= out",
        )


def _check_schema(source: StreamDefinition | TableDefinition, there: Schema, place: Place) -> None:
    for field in source.schema or ():
        doing = f"read {source.topic} as the flow declares it"
        found = place.column(field.name, there, doing)
        if found != field.name:
            place.refuse(f"cannot {doing}: column {field.name!r} is called {found!r} there", hint="write it the same way")
        if there.type(found) != field.type:
            place.refuse(
                f"cannot {doing}: column {found!r} is {type_text(there.type(found))} there, not {type_text(field.type)}",
                hint=f'declare it as "{found} {type_text(there.type(found))}"; change its type with with_columns afterwards',
            )
