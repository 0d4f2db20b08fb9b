"""Sets a group back or forward: first what that would mean, then the move."""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.errors import BadInput, InUse
from penstock.log.consumer import Where
from penstock.log.groups.names import no_group
from penstock.log.groups.places import offsets_at
from penstock.log.groups.port import FLOW, QUEUE, Groups, GroupState, Source
from penstock.log.port import Topic


class Move(NamedTuple):
    """What a reset means for one partition."""

    partition: int
    offset: int | None  # where the group is; None where its offset was of an earlier topic of that name
    to: int
    again: int  # offsets that will be read again
    skipped: int  # offsets that will never be read


def plan(groups: Groups, group: str, topic: Topic, where: Where, partitions: Sequence[int] | None = None) -> list[Move]:
    """What a reset would do. Refused for flows, for groups that do not read the topic, and while members are alive."""
    state = _reading(groups, group, topic.spec.name)
    if state.members:
        names = (f"member {member.id} ({member.label})" for member in state.members)
        raise InUse(f"group {group} is reading {state.topic}", *names, hint="stop them first, then reset")
    same = state.topic_id == topic.id
    if not same and partitions:
        raise BadInput(f"topic {state.topic} was made again: all its partitions start over", hint="leave --partition out")
    known = {part.partition: part.offset for part in state.partitions} if same else {}
    wanted = offsets_at(topic, where)
    for number in partitions or ():
        if number not in wanted:
            raise BadInput(f"topic {state.topic} has no partition {number}", f"it has 0 to {len(wanted) - 1}")
    chosen = {number: to for number, to in wanted.items() if partitions is None or number in partitions}
    return [_move(number, known.get(number, 0) if same else None, to) for number, to in chosen.items()]


def carry_out(groups: Groups, group: str, topic: Topic, moves: Sequence[Move]) -> None:
    source = Source(topic.spec.name, topic.id, topic.spec.partitions)
    groups.put(group, source, {move.partition: move.to for move in moves})


def _reading(groups: Groups, group: str, topic: str) -> GroupState:
    if group.startswith(FLOW):
        flow = group.removeprefix(FLOW)
        raise BadInput(
            f"{group} is a flow: its offsets belong to its state and its results, and cannot move alone",
            hint=f"penstock flow reset {flow} starts it over, outputs and all; or run it under another name",
        )
    if group.startswith(QUEUE):
        queue = group.removeprefix(QUEUE)
        raise BadInput(
            f"{group} is a queue: it leases single messages, and has no offset to move",
            hint=f"penstock queue purge {queue} passes over what is there; a new queue begins at the earliest record",
        )
    states = groups.describe(group)
    for state in states:
        if state.topic == topic:
            return state
    raise no_group(group, topic, [state.group for state in states])


def _move(number: int, offset: int | None, to: int) -> Move:
    at = to if offset is None else offset
    return Move(number, offset, to, max(0, at - to), max(0, to - at))
