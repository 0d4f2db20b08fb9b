"""Consumer groups: members share the partitions of a topic, and the group remembers how far it has come.

One group may read several topics; each pair (group, topic) has members, partitions and offsets of its own. An offset is always
the next one to be read. A reader that keeps its own positions, such as a flow, has no members: it puts its offsets here so that
they are seen, and so that retention waits for it.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from penstock.log.holding import Held

FLOW, QUEUE = "flow.", "queue."  # groups of these prefixes are flows and queues; nobody joins them


class Source(NamedTuple):
    """The topic that a group reads, as its log says now."""

    topic: str
    id: str
    partitions: int


class InFlight(NamedTuple):
    """The first record that a member has taken and not yet finished, and for how long."""

    offset: int
    seconds: float


class Standing(NamedTuple):
    """What a heartbeat answers: it holds until the next heartbeat, at most as long as the lease."""

    generation: int  # grows whenever members or partitions change
    owned: Mapping[int, int]  # the partitions of this member, and the committed offset of each
    asked: AbstractSet[int] = frozenset()  # of these, the ones that another member waits for: finish, take no more of them
    waiting: AbstractSet[int] = frozenset()  # partitions that will be this member's once their owner gives them up


class MemberState(NamedTuple):
    """A member that is alive."""

    id: str
    label: str  # host and process
    silent: float | None  # seconds since its last heartbeat; None where it is not known
    lease: float | None  # seconds it may be silent


@dataclass(frozen=True)
class PartitionState:
    """How far a group has come in one partition."""

    partition: int
    offset: int
    moved: int  # microseconds: when the offset last changed
    owner: str | None = None  # the id of a member
    in_flight: InFlight | None = None


@dataclass(frozen=True)
class GroupState:
    """A group and one of the topics it reads."""

    group: str
    topic: str
    topic_id: str
    generation: int
    members: Sequence[MemberState]  # the ones alive, in the order they came
    partitions: Sequence[PartitionState]


class Membership(Protocol):
    """A member of a group. Its calls may come from several threads, one at a time."""

    @property
    def id(self) -> str: ...

    def heartbeat(self, source: Source, busy: Mapping[int, InFlight] | None = None) -> Standing:
        """Called a few times per lease. Renews it, gives up the partitions that are asked for by others and not busy, and takes
        those that are free for this member; a partition changes its owner only so, or when the owner's lease has run out.
        busy: partitions with unfinished work, and the record in flight of each.
        Fenced once the lease has run out; Mismatch if the topic is not the one that the group read before."""
        ...

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Called when the records before these offsets count as taken. Durable, and all or nothing: Fenced (who owns it now) if
        one of the partitions is not this member's, BadInput if an offset would move back."""
        ...

    def leave(self) -> None:
        """Called when the member ends in order: its partitions are free at once. Does nothing for one that was fenced."""
        ...


class Groups(Protocol):
    """The groups of one log. Safe to use from several threads and processes at once."""

    def join(self, group: str, source: Source, begin: Mapping[int, int], *, label: str, lease: float) -> Membership:
        """Called by a new member, which owns nothing before its first heartbeat. begin: the first offsets, used only where the
        group has none yet; a partition that it does not name, and one added later, begins at 0. lease: seconds.
        Mismatch if the group has offsets of another topic of that name (deleted and made again)."""
        ...

    def put(self, group: str, source: Source, offsets: Mapping[int, int]) -> None:
        """Called to set a group back or forward, and by readers that keep their own positions. Offsets of an earlier topic of
        that name are forgotten. Held while members are alive: it names them."""
        ...

    def forget(self, group: str, topic: str | None = None) -> None:
        """Called when nobody will read as this group any more (topic: only that one). Held while members are alive."""
        ...

    def describe(self, group: str | None = None) -> list[GroupState]:
        """Called to look: the topics of one group, or of all, by name. Changes nothing; NotFound if there is no such group."""
        ...

    def positions(self, topic: str) -> Sequence[Held]:
        """Called before records are removed: how far each reader of the topic has come."""
        ...
