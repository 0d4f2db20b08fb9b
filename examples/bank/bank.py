"""Accounts, and transfers between them: both sides of a transfer are one append."""

from dataclasses import dataclass

from penstock.errors import VersionConflict
from penstock.events import NEW, Aggregate, Changes, EventStore


@dataclass(frozen=True)
class Opened:
    owner: str
    cents: int


@dataclass(frozen=True)
class Sent:
    to: str
    cents: int
    transfer: str


@dataclass(frozen=True)
class Received:
    sender: str
    cents: int
    transfer: str


EVENTS = [Opened, Sent, Received]


class Account(Aggregate):
    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.owner, self.cents = "", 0

    def apply(self, event: object) -> None:
        match event:
            case Opened(owner, cents):
                self.owner, self.cents = owner, cents
            case Sent(_, cents, _):
                self.cents -= cents
            case Received(_, cents, _):
                self.cents += cents


class Refused(Exception):
    """There is not enough money."""


def open_account(store: EventStore, id: str, owner: str, cents: int) -> None:
    store.append(id, [Opened(owner, cents)], expected=NEW, ids=["opened"], who=owner)


def transfer(store: EventStore, source: str, target: str, cents: int, name: str) -> None:
    """Moves money. `name` makes it happen once, however often it is asked for; both accounts must be as they were looked at."""
    while True:
        giver, taker = store.load(Account, source), store.load(Account, target)
        done = any(getattr(event.event, "transfer", None) == name for event in store.read(source))
        if giver.cents < cents and not done:
            raise Refused(f"{giver.owner} has {giver.cents} cents, not {cents}")
        sides = [
            Changes(source, [Sent(target, cents, name)], giver.version, [name]),
            Changes(target, [Received(source, cents, name)], taker.version, [name]),
        ]
        try:
            store.append_together(sides, who=giver.owner, correlation=name)
            return
        except VersionConflict:
            continue  # somebody else was first: look at both again
