"""The port of queues: a message is leased to one consumer at a time, and is gone once one of them acknowledges it.

A message that is given back, or whose lease runs out, is delivered again; after its last try it goes to the dead letters, which are
a queue, too. A queue takes all that is sent to its source, or what its bindings match; several queues of one source are a fan-out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol

Policy = Literal["buffer", "push-back", "drop-newest", "drop-oldest"]
Fate = Literal["ack", "nack", "reject", "extend", "begin"]
PRIORITIES = 10  # 0 to 9; the highest comes first


_NO_HEADERS: Mapping[str, bytes] = MappingProxyType({})


class Message(NamedTuple):
    """What is sent. Its id goes with it everywhere: into dead letters, through bridges, to where duplicates are found."""

    body: bytes
    id: str = ""  # given by the queue where it is empty
    key: str | None = None  # of messages that belong together: ordered queues deliver one of them at a time
    headers: Mapping[str, bytes] = _NO_HEADERS
    priority: int = 0
    delay: timedelta = timedelta(0)  # how long after it was sent it is delivered at the earliest
    ttl: timedelta | None = None  # how long after it was sent it expires, and goes to the dead letters
    route: str = ""  # words with dots between them: what bindings match

    def __reduce__(self) -> tuple[object, ...]:
        """Messages go to other processes, too."""
        return Message, (*self[:3], dict(self.headers), *self[4:])


@dataclass(frozen=True)
class Binding:
    """Which messages of its source a queue takes: those that match both route and headers.

    route: words with dots between them; `*` stands for one word, `#` for any number of them. headers: name and value of those that
    have to be there; any_header: one of them is enough."""

    route: str = "#"
    headers: Mapping[str, bytes] = field(default_factory=dict)
    any_header: bool = False


@dataclass(frozen=True)
class Limit:
    """The limit of a queue, and what happens when messages come faster than they are acked.

    buffer: all are kept; the limit is only a threshold for a note. push-back: senders wait, and then get Full.
    drop-newest: what is sent is dropped. drop-oldest: the oldest that nobody holds are. What was dropped is counted."""

    policy: Policy = "buffer"
    messages: int | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class QueueSpec:
    """The settings of a queue."""

    name: str
    source: str | None = None  # the topic or exchange whose messages it takes; None: one of its own name
    bindings: Sequence[Binding] = ()  # a message is taken if one of them matches; none: all are
    lease: timedelta = timedelta(seconds=30)
    tries: int = 5  # deliveries; after the last one that fails a message goes to the dead letters
    retry: timedelta = timedelta(0)  # the delay of a message that is given back without one
    ordered: bool = False  # of one key, one message at a time, in the order sent
    limit: Limit = Limit()
    dead: str | None = None  # the queue of dead letters; None: its own name and ".dead"
    start: Literal["earliest", "latest"] = "earliest"  # where it begins in a topic that exists already

    @property
    def origin(self) -> str:
        return self.source or self.name

    @property
    def dead_letters(self) -> str:
        return self.dead or f"{self.name}.dead"


class Delivery(NamedTuple):
    """A message that is leased. receipt: what it is settled with, valid for this delivery alone."""

    message: Message
    receipt: str
    attempt: int  # 1: it was never delivered before
    sent: int  # microseconds: when the queue got it
    origin: str = ""  # where it is: topic/partition/offset, or what the broker has instead
    watched: bool = (
        False  # the consumer settles it with `begin` before it begins: else this delivery is no try if its lease runs out
    )


class Settlement(NamedTuple):
    """What becomes of a delivery. ack: it is done. nack: it is delivered again, after `delay`. reject: to the dead letters.
    extend: its lease begins anew, `delay` long. begin: work on a watched one begins now."""

    receipt: str
    fate: Fate
    delay: timedelta | None = None  # None: what the queue's settings say
    reason: str = ""  # for the dead letters
    tried: bool = True  # nack: False where work on it never began, so that this delivery does not count


@dataclass(frozen=True)
class Consumer:
    """Who receives messages."""

    name: str
    prefetch: int = 100  # messages that it may hold at once
    lease: timedelta | None = None  # None: what the queue's settings say
    confirms: bool = False  # whether it settles watched deliveries with `begin` before it begins with them


@dataclass(frozen=True)
class Held:
    """What is leased to one consumer."""

    consumer: str
    messages: int
    seconds: float | None  # until the first of its leases runs out; None where the broker does not say


@dataclass(frozen=True)
class QueueState:
    """A queue as it is now. None: the broker does not say."""

    spec: QueueSpec
    ready: int  # can be delivered now, or as soon as they are read
    delayed: int | None  # not due yet
    lent: int
    bytes: int | None  # of all of them
    oldest: int | None  # microseconds: when the oldest that is not acked was sent
    holders: Sequence[Held] = ()
    counts: Mapping[str, int] = field(default_factory=dict)  # since the beginning: sent, acked, lent again, dead, dropped, refused
    notes: Sequence[str] = ()  # caveats, such as that the queue is gone with its process


class QueuePort(Protocol):
    """One queue. Safe to use from several threads; where its broker is more than memory, from several processes."""

    @property
    def spec(self) -> QueueSpec: ...

    def send(self, messages: Sequence[Message], wait: float = 0.0) -> Sequence[str | None]:
        """Called to send messages: all of them are as durable as the broker makes them when it returns, in their order. Their ids;
        None for one that was dropped. Full if the queue pushed back for `wait` seconds: then none of them is in. Unroutable if
        no queue of the source takes one of them."""
        ...

    def receive(self, consumer: Consumer, most: int = 1, auto: bool = False) -> Sequence[Delivery]:
        """Called to lease what is ready: never more than `most`, nor than the consumer's prefetch leaves; the highest priority
        first, and then the oldest. Does not wait. auto: they are acked as they are delivered."""
        ...

    def settle(self, settlements: Sequence[Settlement]) -> Sequence[str]:
        """Called to settle deliveries; as durable as a send when it returns. The receipts whose lease had run out, or that were
        settled before: nothing was done for those."""
        ...

    def peek(self, most: int = 10) -> Sequence[Delivery]:
        """Called to look: the first messages that nobody holds, in their order. They are not leased, and have no receipt."""
        ...

    def state(self) -> QueueState:
        """Called to look."""
        ...


class QueuesPort(Protocol):
    """The queues of a broker."""

    def create(self, spec: QueueSpec) -> QueuePort:
        """Makes a queue and that of its dead letters; AlreadyThere if there is one of that name."""
        ...

    def queue(self, name: str) -> QueuePort:
        """Opens a queue; NotFound (with the names that are close) if it is not there."""
        ...

    def names(self) -> list[str]:
        """Names of all queues, sorted."""
        ...

    def delete(self, name: str) -> None:
        """Removes a queue with what is in it; its dead letters stay. NotFound if it is not there."""
        ...

    def purge(self, name: str) -> int:
        """Removes all messages that nobody holds; how many there were."""
        ...
