"""What is told of queues: one line a queue, what is in one of them, and who holds it."""

from typing import Any

import click
import pyarrow as pa

from penstock.cli.output import kind_of, print_table, safe
from penstock.cli.queue.at import opened, opened_queues
from penstock.core.arrow import schema_of
from penstock.core.time import SystemClock, duration_text
from penstock.queue.errors import most
from penstock.queue.port import Binding, Limit, QueueSpec, QueueState

COUNTS = ("sent", "acked", "lent again", "dead", "dropped", "refused", "purged")
_NUMBERS: list[tuple[str, pa.DataType]] = [
    ("ready", pa.int64()),
    ("delayed", pa.int64()),
    ("lent", pa.int64()),
    ("oldest_seconds", pa.float64()),
]
LIST = schema_of([("queue", pa.string()), ("takes", pa.string()), *_NUMBERS, ("dead_letters", pa.int64())])
NOW = schema_of([("queue", pa.string()), *_NUMBERS, ("bytes", pa.int64())])
HOLDERS = pa.list_(pa.struct([("consumer", pa.string()), ("messages", pa.int64()), ("seconds", pa.float64())]))
ALL = schema_of([*NOW, *((name.replace(" ", "_"), pa.int64()) for name in COUNTS), ("holders", HOLDERS)])


def print_list(output: str | None) -> bool:
    """Prints all queues; whether there are any."""
    with opened_queues() as queues:
        states = {name: queues.queue(name).state() for name in queues.names()}
    rows = [_numbers(state) | _others(state, states) for state in states.values()]
    if rows or output:
        print_table(pa.Table.from_pylist(rows, LIST), output, keys=["queue"])
    return bool(rows)


def _others(state: QueueState, states: dict[str, QueueState]) -> dict[str, Any]:
    dead = states.get(state.spec.dead_letters)
    return {"takes": takes(state.spec), "dead_letters": dead.ready if dead else None}


def _numbers(state: QueueState) -> dict[str, Any]:
    age = None if state.oldest is None else round((SystemClock().now() - state.oldest) / 1e6, 1)
    return {
        "queue": state.spec.name,
        "ready": state.ready,
        "delayed": state.delayed,
        "lent": state.lent,
        "oldest_seconds": age,
    }


def print_queue(name: str, output: str | None) -> None:
    """Prints one queue: settings and who holds what on standard error, its numbers on standard output."""
    with opened(name) as queue:
        state = queue.state()
    for line in _told(state):
        click.echo(safe(line), err=True)
    row = _numbers(state) | {"bytes": state.bytes} | {n.replace(" ", "_"): state.counts.get(n, 0) for n in COUNTS}
    row["holders"] = [{"consumer": h.consumer, "messages": h.messages, "seconds": _rounded(h.seconds)} for h in state.holders]
    print_table(pa.Table.from_pylist([row], NOW if kind_of(output) == "table" else ALL), output, keys=["queue"])


def _told(state: QueueState) -> list[str]:
    """What the table does not say."""
    spec = state.spec
    lines = [f"queue {spec.name} takes {takes(spec) or 'what is sent to it'}", f"  {_settings(spec)}"]
    counts = [f"{state.counts[name]:,} {name}" for name in COUNTS if state.counts.get(name)]
    lines += [f"  so far: {' · '.join(counts)}"] if counts else []
    for held in state.holders:
        left = "" if held.seconds is None else f", the next lease runs out in {max(0.0, held.seconds):.1f} s"
        lines.append(f"  {held.consumer} holds {held.messages:,} message{'' if held.messages == 1 else 's'}{left}")
    return [*lines, *(f"  note: {note}" for note in state.notes)]


def takes(spec: QueueSpec) -> str | None:
    """What a queue takes, in words; None: all that is sent to it."""
    what = " or ".join(_binding(binding) for binding in spec.bindings)
    return f"{what or 'all'} of {spec.origin}" if what or spec.origin != spec.name else None


def _binding(binding: Binding) -> str:
    joint = " or " if binding.any_header else " and "
    headers = joint.join(f"{name}={value.decode(errors='backslashreplace')}" for name, value in binding.headers.items())
    return f"{binding.route}{f' with {headers}' if headers else ''}"


def _settings(spec: QueueSpec) -> str:
    parts = [
        f"lease {duration_text(spec.lease)}",
        f"{spec.tries} {'try' if spec.tries == 1 else 'tries'}",
        f"rests {duration_text(spec.retry)} in between" if spec.retry else "",
        "one message of a key at a time" if spec.ordered else "",
        limit_text(spec.limit),
        f"dead letters in {spec.dead_letters}",
    ]
    return " · ".join(part for part in parts if part)


def limit_text(limit: Limit) -> str:
    return f"{limit.policy} beyond {most(limit)}" if most(limit) else limit.policy


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
