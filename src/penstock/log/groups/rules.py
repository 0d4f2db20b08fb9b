"""What may happen to a group, as changes of a value. Adapters load it, call one of these, and store it, all in one transaction.

Every change begins with `sweep`: a member whose lease has run out is gone before anything else is looked at, so that no later
call of its can be taken for that of a member.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.errors import BadInput, Fenced, InUse, Mismatch
from penstock.log.groups.assignment import assign
from penstock.log.groups.leases import Beat, runs
from penstock.log.groups.port import GroupState, InFlight, MemberState, PartitionState, Source, Standing


@dataclass(frozen=True)
class Member:
    id: str
    label: str
    seat: int  # numbers members in the order in which they joined
    lease: int  # microseconds
    renewed: Beat


@dataclass(frozen=True)
class Part:
    """One partition of a group."""

    offset: int
    moved: int  # microseconds, by the wall
    owner: str | None = None
    target: str | None = None  # who is to own it; takes it once it is free
    in_flight: tuple[int, int] | None = None  # the owner's record in flight, and since when, by the lease's clock


@dataclass
class State:
    """A group and one of its topics."""

    group: str
    topic: str
    topic_id: str
    generation: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    parts: dict[int, Part] = field(default_factory=dict)

    def change(self, partition: int, **what: object) -> None:
        self.parts[partition] = replace(self.parts[partition], **what)  # type: ignore[arg-type]


def sweep(state: State, now: Beat) -> None:
    """Takes out the members whose lease has run out; their partitions are free."""
    gone = [member.id for member in state.members.values() if not runs(member.renewed, member.lease, now)]
    for id in gone:
        _remove(state, id)
    if gone:
        _share_out(state)


def join(state: State, member: Member, source: Source, begin: Mapping[int, int], wall: int) -> None:
    sweep(state, member.renewed)
    same_topic(state, source)
    begin = begin if not state.parts else {}
    for partition in range(source.partitions):
        state.parts.setdefault(partition, Part(begin.get(partition, 0), wall))
    state.members[member.id] = replace(member, seat=1 + max((m.seat for m in state.members.values()), default=0))
    _share_out(state)


def heartbeat(state: State, id: str, source: Source, busy: Mapping[int, InFlight], now: Beat, wall: int) -> Standing:
    sweep(state, now)
    if id not in state.members:
        raise _lost_membership(state, id)
    same_topic(state, source)
    state.members[id] = replace(state.members[id], renewed=now)
    grown = [partition for partition in range(source.partitions) if partition not in state.parts]
    for partition in grown:
        state.parts[partition] = Part(0, wall)
    if grown:
        _share_out(state)
    pass_on(state, id, busy, now)
    owned = {partition: part.offset for partition, part in state.parts.items() if part.owner == id}
    asked = frozenset(p for p in owned if state.parts[p].target != id)
    waiting = frozenset(p for p, part in state.parts.items() if part.target == id and p not in owned)
    return Standing(state.generation, owned, asked, waiting)


def commit(state: State, id: str, offsets: Mapping[int, int], now: Beat, wall: int) -> None:
    sweep(state, now)
    for partition, offset in offsets.items():
        part = state.parts.get(partition)
        if part is None or part.owner != id:
            raise _not_yours(state, id, partition)
        if offset < part.offset:
            raise BadInput(
                f"cannot commit {state.topic}/{partition} at {offset}: group {state.group} is at {part.offset} already",
                hint=f"penstock group reset {state.group} {state.topic} --to {offset} reads records again",
            )
    for partition, offset in offsets.items():
        _move(state, partition, offset, wall)


def leave(state: State, id: str, now: Beat) -> None:
    sweep(state, now)
    if id in state.members:
        _remove(state, id)
        _share_out(state)


def put(state: State, source: Source, offsets: Mapping[int, int], now: Beat, wall: int) -> None:
    refuse_members(state, now)
    if state.topic_id != source.id:
        state.topic_id, state.parts = source.id, {}
    for partition, offset in offsets.items():
        state.parts.setdefault(partition, Part(0, wall))
        _move(state, partition, offset, wall)


def refuse_members(state: State, now: Beat) -> None:
    """InUse, with their names, while members are alive."""
    sweep(state, now)
    if state.members:
        raise InUse(
            f"group {state.group} is reading {state.topic}",
            *(f"member {m.id} ({m.label})" for m in _in_order(state)),
            hint="stop them first; one that is dead is gone when its lease runs out",
        )


def described(state: State, now: Beat) -> GroupState:
    """What is shown of it now. The value given is swept: give one that is not stored afterwards, or store it."""
    sweep(state, now)
    members = [MemberState(m.id, m.label, (now.at - m.renewed.at) / 1e6, m.lease / 1e6) for m in _in_order(state)]
    parts = [_described_part(number, part, now) for number, part in sorted(state.parts.items())]
    return GroupState(state.group, state.topic, state.topic_id, state.generation, members, parts)


def _described_part(number: int, part: Part, now: Beat) -> PartitionState:
    found = InFlight(part.in_flight[0], max(0, now.at - part.in_flight[1]) / 1e6) if part.in_flight else None
    return PartitionState(number, part.offset, part.moved, part.owner, found)


def pass_on(state: State, id: str, busy: Mapping[int, InFlight], now: Beat) -> None:
    """Gives up what others wait for and is not busy; takes what is free for this member; remembers the records in flight."""
    for number, part in list(state.parts.items()):
        if part.owner == id and part.target != id and number not in busy:
            state.change(number, owner=None, in_flight=None)
        elif part.owner is None and part.target == id:
            state.change(number, owner=id, in_flight=None)
        elif part.owner == id:
            found = busy.get(number)
            state.change(number, in_flight=(found.offset, now.at - round(found.seconds * 1e6)) if found else None)


def _remove(state: State, id: str) -> None:
    del state.members[id]
    for number, part in list(state.parts.items()):
        if part.owner == id:
            state.change(number, owner=None, in_flight=None)


def _share_out(state: State) -> None:
    """Chooses anew who is to own what; nothing moves before its owner gives it up."""
    state.generation += 1
    ids = [member.id for member in _in_order(state)]
    now = {number: part.owner or part.target for number, part in state.parts.items()}
    for number, target in assign(now, ids).items():
        state.change(number, target=target)


def _move(state: State, partition: int, offset: int, wall: int) -> None:
    if state.parts[partition].offset != offset:
        state.change(partition, offset=offset, moved=wall)


def _in_order(state: State) -> list[Member]:
    return sorted(state.members.values(), key=lambda member: member.seat)


def same_topic(state: State, source: Source) -> None:
    """Raises Mismatch where the topic is another one than the group has read."""
    if source.id != state.topic_id:
        raise Mismatch(
            f"topic {state.topic} was deleted and made again since group {state.group} read it",
            "its offsets mean other records now",
            hint=f"penstock group reset {state.group} {state.topic} --to earliest starts the group over",
        )


def _lost_membership(state: State, id: str) -> Fenced:
    owners = [f"{state.topic}/{number} belongs to {part.owner}" for number, part in sorted(state.parts.items()) if part.owner]
    return Fenced(
        f"member {id} is no longer in group {state.group}: its lease ran out, or it left",
        *owners,
        hint="join again; what was not committed is read again by the owner of the partition",
    )


def _not_yours(state: State, id: str, partition: int) -> Fenced:
    part = state.parts.get(partition)
    if part is None:
        whose = f"{state.topic} has no partition {partition}"
    elif part.owner is None:
        whose = f"nobody owns it now; the group is at offset {part.offset}"
    else:
        label = state.members[part.owner].label
        whose = f"it belongs to {part.owner} ({label}) now, in generation {state.generation}, at offset {part.offset}"
    lost = "" if id in state.members else ", whose lease ran out or who left"
    return Fenced(
        f"{state.topic}/{partition} is not owned by member {id} of group {state.group}{lost}: nothing was committed",
        whose,
        hint="what was not committed is read again by its owner",
    )


def lease_micros(seconds: float) -> int:
    """A lease, checked."""
    if not 0.1 <= seconds <= 86_400:
        raise BadInput(f"a lease of {seconds} seconds is too short or too long", hint="from 0.1 seconds to a day; 10 is usual")
    return round(seconds * 1e6)
