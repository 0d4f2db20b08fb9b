"""Groups in memory: the reference for every keeper of groups, and the one of tests."""

import copy
import threading
from collections.abc import Mapping, Sequence

from penstock.core.time import Clock, SystemClock
from penstock.log.groups import rules
from penstock.log.groups.leases import LeaseClock, MachineClock
from penstock.log.groups.names import check_joined, check_reader, new_member, no_group
from penstock.log.groups.port import GroupState, InFlight, Source, Standing
from penstock.log.groups.rules import State
from penstock.log.holding import Held


class MemoryGroups:
    """Groups that live as long as this object."""

    def __init__(self, clock: Clock | None = None, leases: LeaseClock | None = None) -> None:
        self.clock, self.leases = clock or SystemClock(), leases or MachineClock()
        self.states: dict[tuple[str, str], State] = {}
        self.guard = threading.RLock()

    def join(self, group: str, source: Source, begin: Mapping[int, int], *, label: str, lease: float) -> "MemoryMembership":
        check_joined(group)
        with self.guard:
            member = new_member(label, lease, self.leases.beat())
            state = self.states.get((group, source.topic), State(group, source.topic, source.id))
            rules.join(state, member, source, begin, self.clock.now())
            self.states[group, source.topic] = state
            return MemoryMembership(self, state, member.id)

    def put(self, group: str, source: Source, offsets: Mapping[int, int]) -> None:
        check_reader(group, offsets)
        with self.guard:
            state = self.states.get((group, source.topic), State(group, source.topic, source.id))
            rules.put(state, source, offsets, self.leases.beat(), self.clock.now())
            self.states[group, source.topic] = state

    def forget(self, group: str, topic: str | None = None) -> None:
        with self.guard:
            found = [key for key in self.states if key[0] == group and topic in (None, key[1])]
            if not found:
                raise no_group(group, topic, [name for name, _ in self.states])
            for key in found:
                rules.refuse_members(self.states[key], self.leases.beat())
            for key in found:
                del self.states[key]

    def describe(self, group: str | None = None) -> list[GroupState]:
        with self.guard:
            found = [copy.deepcopy(state) for (name, _), state in sorted(self.states.items()) if group in (None, name)]
            if group is not None and not found:
                raise no_group(group, None, [name for name, _ in self.states])
            return [rules.described(state, self.leases.beat()) for state in found]

    def positions(self, topic: str) -> Sequence[Held]:
        with self.guard:
            found = [state for (_, name), state in sorted(self.states.items()) if name == topic]
            return [Held(s.group, topic, n, part.offset, part.moved) for s in found for n, part in sorted(s.parts.items())]


class MemoryMembership:
    """A member of one of the groups of MemoryGroups."""

    def __init__(self, groups: MemoryGroups, state: State, id: str) -> None:
        self._groups, self._state, self._id = groups, state, id

    @property
    def id(self) -> str:
        return self._id

    def heartbeat(self, source: Source, busy: Mapping[int, InFlight] | None = None) -> Standing:
        with self._groups.guard:
            beat, wall = self._groups.leases.beat(), self._groups.clock.now()
            return rules.heartbeat(self._state, self._id, source, busy or {}, beat, wall)

    def commit(self, offsets: Mapping[int, int]) -> None:
        with self._groups.guard:
            rules.commit(self._state, self._id, offsets, self._groups.leases.beat(), self._groups.clock.now())

    def leave(self) -> None:
        with self._groups.guard:
            rules.leave(self._state, self._id, self._groups.leases.beat())
