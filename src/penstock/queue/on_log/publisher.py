"""Writes messages into a topic: a group commit makes one frame of what several threads send at once."""

from collections.abc import Sequence

from penstock.core.time import Clock
from penstock.errors import BadInput
from penstock.log.port import Topic
from penstock.queue.on_log.records import encode_messages
from penstock.queue.port import Message
from penstock.storage.group_commit import GroupCommit, Pending, Refused

_MAX_GROUP = 1 << 20  # bytes of bodies that become one frame
_INTERRUPTED = "sending was interrupted; the messages may or may not be there"


class Publisher:
    """Of one topic, in one process."""

    def __init__(self, topic: Topic, clock: Clock, max_group: int = _MAX_GROUP) -> None:
        self._topic, self._clock = topic, clock
        self.sends: GroupCommit[Sequence[Message], None] = GroupCommit(self._commit, _INTERRUPTED, max_group)

    def send(self, messages: Sequence[Message]) -> None:
        """Returns when they are safe: all of them, or in a topic of several partitions those of each."""
        if self._topic.spec.partitions > 1:  # what the second partition refuses may be in the first: nobody shares that
            self.sends.run_alone(messages)
        else:
            self.sends.run(messages, sum(len(message.body) for message in messages))

    def _commit(self, group: Sequence[Pending[Sequence[Message], None]]) -> None:
        try:
            rows = encode_messages(self._topic, [message for one in group for message in one.request], self._clock.now())
            for partition, batch, _ in rows.by_partition():
                self._topic.append(partition, batch)
        except BadInput as error:
            raise Refused(error) from error
        for one in group:
            one.result = None
