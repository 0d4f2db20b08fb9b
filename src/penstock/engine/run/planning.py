"""The plan of a flow over a log: what topics are, and which columns the tables have that captures follow."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from penstock.capture.commits import journal_name
from penstock.capture.writing.journal import read_journal
from penstock.core.schema import Schema
from penstock.engine.run.epoch.decision import Decisions
from penstock.errors import BadFlow, NotFound
from penstock.flow.facts import CapturedTable, TopicFacts
from penstock.flow.graph import FlowGraph
from penstock.flow.resolve import resolve
from penstock.flow.sql.analyzer import Analyzer
from penstock.flow.topics import Suggest
from penstock.log.port import Log
from penstock.plan import Plan
from penstock.plan.meaning import is_of

COLUMNS = "columns"  # what a start says of the tables whose columns it has taken from captures


def topics_read(graph: FlowGraph) -> set[str]:
    """The topics that the sources of a flow name."""
    return {topic for node in graph.nodes if (topic := getattr(node.definition, "topic", None))}


def facts_of(log: Log, read: Collection[str]) -> dict[str, TopicFacts]:
    """What a log knows of its topics. read: those that a flow reads; what captures say is asked for these alone."""
    facts: dict[str, TopicFacts] = {}
    journals: dict[str, Mapping[str, Any]] = {}
    for name in log.topics():
        spec = log.topic(name).spec
        if spec.capture and name in read and spec.capture not in journals:
            journals[spec.capture] = _tables(log, spec.capture)
        told = journals[spec.capture].get(name) if spec.capture and name in read else None
        table = CapturedTable(Schema.of(told["schema"]), tuple(told["key"]), told["flat"]) if told else None
        facts[name] = TopicFacts(spec.writer is not None, spec.time, spec.schema, spec.changelog, spec.capture, table)
    return facts


def _tables(log: Log, capture: str) -> Mapping[str, Any]:
    try:
        return read_journal(log.topic(journal_name(capture))).state.tables
    except NotFound:
        return {}


def taken_columns(plan: Plan) -> dict[str, dict[str, Any]]:
    """The tables whose columns the flow did not say: as a start notes them down."""
    versions = {source.topic: source.versions for source in plan.sources.values() if source.versions}
    return {topic: {"schema": v.taken, "key": list(v.key)} for topic, v in versions.items() if v.taken}


@dataclass(frozen=True)
class Planner:
    """Checks one flow over a log of which this is known."""

    graph: FlowGraph
    analyzer: Analyzer
    facts: Mapping[str, TopicFacts]
    suggest: Suggest | None = None

    def plan(self, decisions: Decisions, say: Callable[[str], None]) -> Plan:
        """The checked plan. Where a captured table has other columns by now than the flow has state for, the plan with those of
        then: the flow goes on as it was, and takes new columns in when it is started over."""
        try:
            now = self._with(self.facts)
        except BadFlow:
            before = self._as_it_was(decisions, say)
            if before is None:
                raise
            return before
        return (self._as_it_was(decisions, say, now) if taken_columns(now) else None) or now

    def _as_it_was(self, decisions: Decisions, say: Callable[[str], None], now: Plan | None = None) -> Plan | None:
        """The plan that the flow's state belongs to, by what its starts have noted down; None if it is not to be found, or it is
        the one of now."""
        earlier = list(_earlier(self.facts, decisions))
        last = decisions.last() if earlier else None
        if last is None or (now and is_of(now, last.fingerprint)):
            return None
        for facts in earlier:
            with suppress(BadFlow):
                plan = self._with(facts)
                if is_of(plan, last.fingerprint):
                    _tell(self.graph.name, self.facts, facts, say)
                    return plan
        return None

    def _with(self, facts: Mapping[str, TopicFacts]) -> Plan:
        return resolve(self.graph, self.analyzer, facts, self.suggest)


def _earlier(facts: Mapping[str, TopicFacts], decisions: Decisions) -> Iterator[dict[str, TopicFacts]]:
    """The facts with the columns that earlier starts of the flow have read, the last one first."""
    for start in decisions.starts():
        tables = {
            topic: replace(known, schema=Schema.of(noted["schema"]), key=tuple(noted["key"]))
            for topic, noted in start.get(COLUMNS, {}).items()
            if topic in facts and (known := facts[topic].table)
        }
        if tables:
            yield {name: replace(fact, table=tables.get(name, fact.table)) for name, fact in facts.items()}


def _tell(flow: str, now: Mapping[str, TopicFacts], before: Mapping[str, TopicFacts], say: Callable[[str], None]) -> None:
    for topic, fact in now.items():
        kept = before[topic].table
        if fact.table and kept and fact.table.schema != kept.schema:
            new = [name for name in fact.table.schema.names if name not in kept.schema]
            what = f"without {', '.join(new)}, which came later" if new else "though they have changed"
            say(
                f"flow {flow} goes on with the columns of {topic} that it has, {what}; `penstock flow reset {flow}` takes them over"
            )
