"""The law of a capture's topics over a script: each change once, in its place, and a journal that never says more than is there."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from capture_scripted import TABLES, Place, Script, Truncate, Write, key_text
from penstock.capture.naming import TopicNames
from penstock.capture.port import DELETE, Table
from penstock.log.port import Log
from penstock.testing.contracts.capture.records import JournalRecord, Record, envelopes_of, journal_of, records_of


@dataclass(frozen=True)
class Event:
    """One change as the topic of its table should have it."""

    table: Table
    op: str
    key: str
    before: Any
    after: Any
    transaction: str
    total_order: int
    order: int  # among those of the table
    truncated: bool = False


def events_of(script: Script, upto: Place | None = None) -> list[Event]:
    """What should be in the topics once the script is written up to a place, one step after the other."""
    live: dict[Table, dict[int, str]] = {table: {} for table in TABLES}
    events: list[Event] = []
    for number, work in enumerate(script):
        counts: Counter[Table] = Counter()
        for index, step in enumerate(work.steps):
            if upto is not None and (number, index) >= upto:
                return events
            for event in _made(step, live[step.table]):
                counts[event.table] += 1
                placed = replace(event, transaction=work.id, total_order=counts.total(), order=counts[event.table])
                events.append(placed)
    return events


def _made(step: Write | Truncate, rows: dict[int, str]) -> list[Event]:
    if isinstance(step, Truncate):
        gone = list(rows)
        rows.clear()
        return [Event(step.table, "d", key_text(key), {"id": key}, None, "", 0, 0, truncated=True) for key in gone]
    row = {"id": step.key, "v": step.value}
    if step.op == DELETE:
        rows.pop(step.key)
        return [Event(step.table, "d", key_text(step.key), row, None, "", 0, 0)]
    rows[step.key] = step.value
    return [Event(step.table, chr(step.op), key_text(step.key), None, row, "", 0, 0)]


def told(log: Log, names: TopicNames) -> list[Event]:
    """What is in the topics, by transaction and place; in a partition the records stand in that order already."""
    events, begun = list[Event](), _numbers(log, names)
    for table in TABLES:
        reached: dict[int, tuple[int, int]] = {}
        for record in envelopes_of(log, names.topic(table)):
            value = record.value
            assert (value["source"]["schema"], value["source"]["table"]) == table
            assert record.transaction in begun, f"{record.transaction} has not begun"
            place = begun[record.transaction], value["transaction"]["total_order"]
            assert reached.get(record.partition, (-1, -1)) < place, f"doubled, or out of order: {record}"
            reached[record.partition] = place
            said, numbers = (
                value["transaction"],
                (value["transaction"]["total_order"], value["transaction"]["data_collection_order"]),
            )
            truncated = value["op"] == "d" and "v" not in value["before"]
            events.append(
                Event(table, value["op"], record.key, value["before"], value["after"], said["id"], *numbers, truncated=truncated)
            )
    return sorted(events, key=lambda event: (begun[event.transaction], event.total_order))


def _numbers(log: Log, names: TopicNames) -> Mapping[str, int]:
    return {record.id: number for number, record in enumerate(r for r in journal_of(log, names.name) if r.status == "BEGIN")}


def in_any_order_of_truncates(events: Sequence[Event]) -> list[Event]:
    """The same, where the order of the deletes that one truncate has become does not count."""
    found, run = list[Event](), list[Event]()
    for event in [*events, None]:
        if run and (event is None or not event.truncated or (event.transaction, event.table) != (run[0].transaction, run[0].table)):
            keys = sorted(each.key for each in run)
            found += [replace(each, key=key, before=None) for each, key in zip(run, keys, strict=True)]
            run = []
        if event is not None:
            (run if event.truncated else found).append(event)
    return found


def check_topics(log: Log, names: TopicNames, script: Script, upto: Place | None = None) -> None:
    """Every change of the script is there once, in its place, and nothing else."""
    assert in_any_order_of_truncates(told(log, names)) == in_any_order_of_truncates(events_of(script, upto))


def check_flat(log: Log, names: TopicNames, script: Script) -> None:
    """The same of topics that have the rows alone."""
    for table in TABLES:
        should = [(event.key, event.after) for event in events_of(script) if event.table == table]
        found = [(f'{{"id":{record.key}}}', record.value) for record in records_of(log, names.topic(table))]
        assert found == should


def check_journal(log: Log, names: TopicNames, script: Script, whole: bool = True) -> None:
    """BEGIN and END once for each transaction, with its counts; and behind every END exactly what it says is in the topics."""
    journal = journal_of(log, names.name)
    ids = [work.id for work in script]
    begun, ended = ([record for record in journal if record.status == status] for status in ("BEGIN", "END"))
    assert [record.id for record in begun] == ids[: len(begun)]
    assert [record.id for record in ended] == ids[: len(ended)]
    assert not whole or len(ended) == len(ids)
    every = events_of(script)
    for record in ended:
        events = [event for event in every if event.transaction == record.id]
        tables = Counter(f"{schema}.{table}" for schema, table in (event.table for event in events))
        assert (record.events, dict(record.tables)) == (len(events), dict(tables))
    there = {table: [r for r in records_of(log, names.topic(table)) if r.value is not None] for table in TABLES}
    for number, said in enumerate(said_at_ends(journal), 1):
        assert said["batch"] == number
        upto = said["position"]["done"], said["position"]["steps"]
        should = Counter(event.table for event in events_of(script, upto))
        for table in TABLES:
            check_end(there[table], said["offsets"].get(names.topic(table), ()), should[table])


def said_at_ends(journal: Sequence[JournalRecord]) -> list[Mapping[str, Any]]:
    return [record.said for record in journal if record.said and "offsets" in record.said]


def check_end(there: Sequence[Record], offsets: Sequence[int], should: int) -> None:
    """So many changes lie before the offsets that an END has of a table."""
    ends = dict(enumerate(offsets))
    assert sum(record.offset < ends.get(record.partition, 0) for record in there) == should, f"END says {ends}"
