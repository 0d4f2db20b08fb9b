"""What is told of groups: one line a topic, one line a partition, and what a reset would do."""

from collections.abc import Sequence
from typing import Any

import click
import pyarrow as pa

from penstock.cli.output import print_table, safe
from penstock.core.arrow import schema_of
from penstock.core.schema import TIMESTAMP
from penstock.core.time import SystemClock
from penstock.log.groups.lag import Lag, lags
from penstock.log.groups.port import GroupState, MemberState, PartitionState
from penstock.log.groups.resetting import Move
from penstock.log.open import open_log

LIST = schema_of(
    [
        ("group", pa.string()),
        ("topic", pa.string()),
        ("members", pa.int64()),
        ("partitions", pa.int64()),
        ("lag_records", pa.int64()),
        ("lag_seconds", pa.float64()),
        ("moved", TIMESTAMP),
    ]
)
PARTITIONS = schema_of(
    [
        ("topic", pa.string()),
        ("partition", pa.int64()),
        ("offset", pa.int64()),
        ("end", pa.int64()),
        ("lag_records", pa.int64()),
        ("lag_seconds", pa.float64()),
        ("owner", pa.string()),
        ("in_hand", pa.int64()),
        ("in_hand_seconds", pa.float64()),
        ("moved", TIMESTAMP),
    ]
)
MOVES = pa.schema([(name, pa.int64()) for name in ("partition", "offset", "to", "read_again", "skipped")])


def print_list(output: str | None) -> bool:
    """Prints all groups; whether there are any."""
    log = open_log()
    rows = [_summary(state, lags(log, state, SystemClock().now())) for state in log.groups().describe()]
    if rows or output:
        print_table(pa.Table.from_pylist(rows, LIST), output, keys=["group", "topic"])
    return bool(rows)


def _summary(state: GroupState, behind: dict[int, Lag] | None) -> dict[str, Any]:
    return {
        "group": state.group,
        "topic": state.topic,
        "members": len(state.members),
        "partitions": len(state.partitions),
        "lag_records": None if behind is None else sum(lag.records for lag in behind.values()),
        "lag_seconds": None if behind is None else _rounded(max((lag.seconds for lag in behind.values()), default=0.0)),
        "moved": max((part.moved for part in state.partitions), default=None),
    }


def print_group(name: str, output: str | None) -> None:
    """Prints one group: its members on standard error, its partitions on standard output."""
    log = open_log()
    rows: list[dict[str, Any]] = []
    for state in log.groups().describe(name):
        behind = lags(log, state, SystemClock().now())
        rows += [_partition(state, part, behind) for part in state.partitions]
        for line in _told(state, behind):
            click.echo(safe(line), err=True)
    print_table(pa.Table.from_pylist(rows, PARTITIONS), output, keys=["topic", "partition"])


def _partition(state: GroupState, part: PartitionState, behind: dict[int, Lag] | None) -> dict[str, Any]:
    lag = behind.get(part.partition) if behind else None
    labels = {member.id: member.label for member in state.members}
    return {
        "topic": state.topic,
        "partition": part.partition,
        "offset": part.offset,
        "end": lag.end if lag else None,
        "lag_records": lag.records if lag else None,
        "lag_seconds": _rounded(lag.seconds) if lag else None,
        "owner": f"{part.owner} ({labels.get(part.owner, '?')})" if part.owner else None,
        "in_hand": part.in_flight.offset if part.in_flight else None,
        "in_hand_seconds": _rounded(part.in_flight.seconds) if part.in_flight else None,
        "moved": part.moved,
    }


def _told(state: GroupState, behind: dict[int, Lag] | None) -> list[str]:
    """What the table does not say."""
    lines = [f"group {state.group} reads {state.topic}: {len(state.members)} alive, generation {state.generation}"]
    lines += [f"  member {m.id} ({m.label}){_heard(m)}" for m in state.members]
    if behind is None:
        lines.append(f"  topic {state.topic} was deleted{' or made again' if state.partitions else ''} since the group read it")
    for lag in (behind or {}).values():
        if lag.removed:
            lines.append(f"  {state.topic}/{lag.partition}: {lag.removed} records were removed before the group read them")
    return lines


def _heard(member: MemberState) -> str:
    return "" if member.silent is None else f" was heard {member.silent:.1f} s ago, lease {member.lease:g} s"


def print_moves(moves: Sequence[Move], output: str | None) -> None:
    rows = [dict(zip(MOVES.names, move, strict=True)) for move in moves]
    print_table(pa.Table.from_pylist(rows, MOVES), output, keys=["partition"])


def _rounded(seconds: float) -> float:
    return round(seconds, 1)
