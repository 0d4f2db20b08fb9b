"""What happened to the messages of a queue: each event can be written into a journal, and applied again.

Encoded, an event is a list that JSON can hold: its kind, and its fields in their order. Journals of earlier versions hold the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from penstock.queue.state.machine import StateMachine

Encoded = list[Any]


class Event(Protocol):
    """A change of a state machine."""

    def encode(self) -> Encoded: ...

    def apply(self, machine: StateMachine) -> None:
        """Does again what was done when the event happened."""
        ...


@dataclass(frozen=True, slots=True)
class Rebooted:
    """The machine was started anew, which ended all leases."""

    kind: ClassVar = "boot"
    boot: str

    def encode(self) -> Encoded:
        return [self.kind, self.boot]

    def apply(self, machine: StateMachine) -> None:
        machine.reboot(self.boot)


@dataclass(frozen=True, slots=True)
class Leased:
    """A consumer was given messages. confirms: it tells when it begins with one."""

    kind: ClassVar = "take"
    consumer: str
    token: int
    until: int
    positions: Sequence[int]
    confirms: bool = False

    def encode(self) -> Encoded:
        encoded = [self.kind, self.consumer, self.token, self.until, self.positions]
        return [*encoded, True] if self.confirms else encoded

    def apply(self, machine: StateMachine) -> None:
        machine.lease([machine.items[p] for p in self.positions], self.consumer, self.token, self.until, self.confirms)


@dataclass(frozen=True, slots=True)
class Begun:
    """A consumer began with messages that it had to confirm."""

    kind: ClassVar = "begin"
    positions: Sequence[int]

    def encode(self) -> Encoded:
        return [self.kind, self.positions]

    def apply(self, machine: StateMachine) -> None:
        for position in self.positions:
            machine.items[position].begun = True


@dataclass(frozen=True, slots=True)
class Extended:
    """Leases were extended."""

    kind: ClassVar = "extend"
    until: int
    positions: Sequence[int]

    def encode(self) -> Encoded:
        return [self.kind, self.until, self.positions]

    def apply(self, machine: StateMachine) -> None:
        for position in self.positions:
            machine.extend(machine.items[position], self.until)


@dataclass(frozen=True, slots=True)
class Returned:
    """Messages were given back after a try."""

    kind: ClassVar = "back"
    due: int
    reason: str
    positions: Sequence[int]

    def encode(self) -> Encoded:
        return [self.kind, self.due, self.reason, self.positions]

    def apply(self, machine: StateMachine) -> None:
        for position in self.positions:
            machine.give_back(machine.items[position], self.due, self.reason)


@dataclass(frozen=True, slots=True)
class Released:
    """Messages were given back, and that was no try."""

    kind: ClassVar = "untried"
    due: int
    positions: Sequence[int]

    def encode(self) -> Encoded:
        return [self.kind, self.due, self.positions]

    def apply(self, machine: StateMachine) -> None:
        for position in self.positions:
            item = machine.items[position]
            item.attempts -= 1
            machine.give_back(item, self.due, "")


@dataclass(frozen=True, slots=True)
class Rejected:
    """Messages were sent to the dead letters."""

    kind: ClassVar = "aside"
    reason: str
    positions: Sequence[int]

    def encode(self) -> Encoded:
        return [self.kind, self.reason, self.positions]

    def apply(self, machine: StateMachine) -> None:
        for position in self.positions:
            machine.reject(machine.items[position], self.reason)


@dataclass(frozen=True, slots=True)
class Finished:
    """Messages are done; outcome: the count that they are added to."""

    kind: ClassVar = "done"
    outcome: str
    positions: Sequence[int]

    def encode(self) -> Encoded:
        return [self.kind, self.outcome, self.positions]

    def apply(self, machine: StateMachine) -> None:
        machine.finish([machine.items[position] for position in self.positions], self.outcome)


@dataclass(frozen=True, slots=True)
class Counted:
    """Messages that never were in the queue were counted."""

    kind: ClassVar = "count"
    counter: str
    count: int

    def encode(self) -> Encoded:
        return [self.kind, self.counter, self.count]

    def apply(self, machine: StateMachine) -> None:
        machine.counts[self.counter] += self.count


_EVENTS: dict[str, type[Event]] = {
    event.kind: event for event in (Rebooted, Leased, Begun, Extended, Returned, Released, Rejected, Finished, Counted)
}


def decode(encoded: Encoded) -> Event:
    kind, *fields = encoded
    if kind not in _EVENTS:
        raise ValueError(f"no event is called {kind}")
    return _EVENTS[kind](*fields)
