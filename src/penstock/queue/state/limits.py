"""What a queue's limit leaves room for."""

import bisect
import itertools
from collections.abc import Collection, Sequence

from penstock.queue.port import Limit, Message, QueueSpec
from penstock.queue.state.item import Item
from penstock.queue.state.machine import StateMachine
from penstock.queue.state.routing import takes
from penstock.queue.state.transitions import oldest_waiting

_EMPTY = StateMachine()


def room_for(spec: QueueSpec, messages: Sequence[Message], machine: StateMachine = _EMPTY) -> bool:
    """Whether a queue has room for the messages beside those that are in it."""
    return fits(spec.limit, [message for _, message in _taken(spec, messages)], machine)


def fits(limit: Limit, messages: Sequence[Message], machine: StateMachine = _EMPTY) -> bool:
    count, size = machine.load()
    if limit.messages is not None and count + len(messages) > limit.messages:
        return False
    return limit.bytes is None or size + sum([len(m[0]) for m in messages]) <= limit.bytes


def too_many(spec: QueueSpec, messages: Sequence[Message], machine: StateMachine) -> Collection[int]:
    """Of messages that are sent, the positions of those that are too many for a queue: the newest."""
    mine, (count, size) = _taken(spec, messages), machine.load()
    most = len(mine) if spec.limit.messages is None else max(0, spec.limit.messages - count)
    if spec.limit.bytes is not None:
        sizes = list(itertools.accumulate(len(m.body) for _, m in mine))
        most = min(most, bisect.bisect_right(sizes, spec.limit.bytes - size))
    return {i for i, _ in mine[most:]}


def too_old(limit: Limit, machine: StateMachine) -> list[Item]:
    """Of the messages that nobody holds, the oldest, as many as are too many."""
    count, size = machine.load()
    messages = count - limit.messages if limit.messages is not None else 0
    return oldest_waiting(machine, messages, size - limit.bytes if limit.bytes is not None else 0)


def _taken(spec: QueueSpec, messages: Sequence[Message]) -> list[tuple[int, Message]]:
    return [(i, m) for i, m in enumerate(messages) if takes(spec.bindings, m.route, m.headers, spec.name)]
