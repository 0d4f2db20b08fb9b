"""From the graph to a plan: everything is checked here, before anything starts."""

from collections.abc import Mapping, Sequence

from penstock import plan
from penstock.flow.definition import Known, Node
from penstock.flow.graph import FlowGraph, Written
from penstock.flow.naming import equal_names, names_of
from penstock.flow.place import At, Place
from penstock.flow.pruning import prune
from penstock.flow.sql.analyzer import Analyzer
from penstock.flow.steps.alerts import AlertDefinition
from penstock.flow.steps.enrich import carry_append_times
from penstock.flow.steps.updates import maker_of, refuse_updates
from penstock.flow.topics import Suggest, TopicFacts, check_topics


def resolve(
    graph: FlowGraph, analyzer: Analyzer, topics: Mapping[str, TopicFacts] | None = None, suggest: Suggest | None = None
) -> plan.Plan:
    """The checked plan of a flow; BadFlow says what is wrong, where, and what to do.

    `topics` are facts about the topics of the log the flow will run on; None where there is no log (a test).
    `suggest(topic, time)` may give a lateness that was measured, for the hint where one is missing."""
    _check_outputs(graph)
    nodes = _reachable(graph)
    given = _given(graph, nodes)
    names = names_of(graph.name, nodes, given)
    known: dict[Node, Known] = {}
    for node in nodes:
        at = At(graph.name, node.origin, names[node], chosen=node in given, analyzer=analyzer, topics=topics)
        inputs = [known[i] for i in node.inputs]
        _check_updates(node, inputs, at)
        known[node] = node.definition.resolve(at, inputs)
    given_to = [_told(written, known[written.node]) for written in graph.outputs]
    told = {each.name: each for each in given_to if isinstance(each.step.node, plan.Told)}  # once, however many actions it has
    steps = carry_append_times([step for each in (*(known[node] for node in nodes), *told.values()) for step in each.steps])
    _check_hidden_names(graph.name, steps)
    check_topics(graph.name, nodes, known, topics, suggest)
    outputs = tuple(_output(graph.name, written, rows) for written, rows in zip(graph.outputs, given_to, strict=True))
    return plan.Plan(graph.name, prune(graph.name, steps, outputs), outputs, graph.dead_limit)


def _check_outputs(graph: FlowGraph) -> None:
    if not graph.outputs:
        Place(graph.name, graph.origin).refuse(
            "nothing to run: the flow has no output", hint='send a stream somewhere: stream.to("topic") or stream.view("name")'
        )
    reads = {getattr(node.definition, "topic", None): node for node in _reachable(graph)}
    for written in graph.outputs:
        if written.topic and written.topic in reads:
            Place(graph.name, written.origin).refuse(
                f"cannot write topic {written.topic!r}: the flow also reads it, so it would feed itself",
                f"read here: {reads[written.topic].origin}",
                hint="write to another topic",
            )


def _reachable(graph: FlowGraph) -> list[Node]:
    """The nodes that some output needs, inputs first: nodes are kept in the order they were written."""
    needed: set[Node] = set()
    for node in reversed(graph.nodes):
        if node in needed or any(written.node is node for written in graph.outputs):
            needed |= {node, *node.inputs}
    return [node for node in graph.nodes if node in needed]


def _given(graph: FlowGraph, nodes: Sequence[Node]) -> dict[Node, str]:
    """The names that the user chose: `name=`, else the first output. A source keeps the name of its topic."""
    given: dict[Node, str] = {}
    for written in graph.outputs:
        if written.node.inputs:
            given.setdefault(written.node, written.name)
    return given | {node: name for node, name in graph.names.items() if node in nodes}


def _check_updates(node: Node, inputs: Sequence[Known], at: At) -> None:
    if not node.definition.takes_updates:
        for known in inputs:
            refuse_updates(known, node.definition.kind, at, "put this step before that one, or serve the changing rows as a view")


def _check_hidden_names(flow: str, steps: Sequence[plan.Step]) -> None:
    seen: dict[str, plan.Step] = {}
    for step in steps:
        other = seen.setdefault(step.name, step)
        if other is not step:
            raise equal_names(flow, step.name, other.origin, step.origin)


def _told(written: Written, known: Known) -> Known:
    """What an output gets: the rows of its step; what an action is told of them, where they are alerts that change."""
    alert = written.node.definition
    if known.step.updating and not written.definition.takes_updates and isinstance(alert, AlertDefinition):
        return alert.told(known)
    return known


def _output(flow: str, written: Written, known: Known) -> plan.Output:
    at, definition = Place(flow, written.origin, known.name), written.definition
    what = f"{definition.kind} {written.name!r}"
    if known.step.updating and not definition.takes_updates:
        maker = maker_of(known)
        at.refuse(
            f"cannot write {known.label} to {what}: its rows change, and what was written there stays",
            f'made updating by step "{maker.name}" ({maker.step.origin})',
            hint=_instead(known, written.name),
        )
    if known.step.updating and not definition.by_row and not (definition.columns or known.view_key):
        maker = maker_of(known)
        at.refuse(
            f"cannot write {known.label} to {what}: its rows change, and no column tells them apart",
            f'made updating by step "{maker.name}" ({maker.step.origin})',
            hint=f'name the columns that do: .to("{written.name}", key=…); or serve it as a view: .view("{written.name}")',
        )
    if definition.columns:
        key = at.columns(definition.columns, known.schema, f"key {what}")
        for name in key:
            at.keyable(name, known.schema, f"key {what}")
    else:
        key = known.view_key if definition.by_row or known.step.updating else known.topic_key
    return plan.Output(definition, written.name, known.name, key, written.origin)


def _instead(known: Known, name: str) -> str:
    """What to do with rows that change, where something is to be done that cannot be taken back."""
    if _alerts(known):
        return "put this step before alert(), and let the action take the alerts themselves"
    return f'say when something begins and ends: .alert(when="…", by="…").sink(…); or serve the rows as a view: .view("{name}")'


def _alerts(known: Known) -> bool:
    return isinstance(known.step.node, plan.AlertTable) or any(map(_alerts, known.inputs))
