"""Who still has to read a topic, and how far each has come: what retention waits for."""

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Held(NamedTuple):
    """How far a reader has come in one partition."""

    reader: str  # a group; of a flow flow.<name>
    topic: str
    partition: int
    offset: int  # the next one it will read
    since: int  # microseconds: when it came there


Holds = Callable[[str], Sequence[Held]]  # topic -> its readers


def nobody(topic: str) -> Sequence[Held]:
    """No reader holds anything back."""
    return ()
