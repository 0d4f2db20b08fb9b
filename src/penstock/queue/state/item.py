"""A message that is not done yet, as the state machine of its queue knows it."""

from typing import Any

READY, DELAYED, BLOCKED, LEASED, DYING, GONE = range(6)  # DYING: on its way to the dead letters; snapshots hold these numbers
AT_ONCE = FOREVER = 0  # no time before which it is not delivered; no time at which it expires


class Item:
    """The message at one position. What it says is kept elsewhere, or in `payload`."""

    __slots__ = (
        "attempts",
        "begun",
        "consumer",
        "due",
        "expires",
        "key",
        "number",
        "payload",
        "position",
        "priority",
        "sent",
        "size",
        "status",
        "token",
        "until",
    )
    number: int  # how many were sent before it; set when it is admitted
    consumer: str  # who has it leased, or had it last; under which token, and until when
    token: int
    until: int
    payload: Any  # for whoever runs the state machine

    def __init__(
        self,
        position: int,
        size: int,
        sent: int,
        priority: int = 0,
        due: int = AT_ONCE,
        expires: int = FOREVER,
        key: str | None = None,
    ) -> None:
        self.position = position
        self.size = size
        self.sent = sent
        self.priority = priority
        self.due = due
        self.expires = expires
        self.key = key
        self.attempts = 0
        self.begun = True  # leased, and as far as anybody knows work on it has begun
        self.status = READY

    def __lt__(self, other: "Item") -> bool:
        return self.number < other.number

    @property
    def waiting(self) -> bool:
        """Whether nobody holds it, and it is neither done nor dying."""
        return self.status <= BLOCKED
