"""What a queue on the log has to remember: how far its topic was read, and the state of the messages before that."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.queue.state.item import Item
from penstock.queue.state.machine import StateMachine


class ReadMessages(NamedTuple):
    """What was read of a partition: the messages for this queue, and the offset of the first record behind."""

    partition: int
    next: int
    items: Sequence[Item]
    at_end: bool  # of the partition


@dataclass
class LogQueueState:
    machine: StateMachine
    topic_id: str
    next: dict[int, int] = field(default_factory=dict)  # by partition: the first offset that was not read
    dead_letters: dict[int, int] = field(default_factory=dict)  # by position: the sequence number of the dead letter to be stored
    dead_letter: int = 0  # the last of those numbers
