"""A topic that a capture writes: numbered frames, each there once, and none from a start that was replaced."""

import pyarrow as pa

from penstock.core.columns import KEY, VALUE
from penstock.errors import SequenceGap
from penstock.log.port import Appended, Sender, Topic

_NOTHING = pa.record_batch([pa.array([], pa.binary()), pa.array([], pa.binary())], [VALUE, KEY])


def sender_of(capture: str) -> str:
    """Whose stamp the frames of a capture bear."""
    return f"capture/{capture}"


class FencedTopic:
    """Appends frames under the numbers of batches. `fence` comes first: it shuts out every older start."""

    def __init__(self, topic: Topic, capture: str, generation: int = 0) -> None:
        self.topic, self._sender, self._generation = topic, sender_of(capture), generation
        self._numbers: dict[int, int] = {}

    def seen(self) -> int:
        """The greatest generation that has written here; -1 if none has."""
        stamps = (self.topic.senders(partition).get(self._sender) for partition in self.topic.ends())
        return max((stamp.epoch for stamp in stamps if stamp), default=-1)

    def fence(self, generation: int) -> None:
        """Stamps every partition, so that an older start, however late it wakes up, is refused by the log."""
        self._generation = generation
        while not self._fenced():
            pass  # an older one has appended since the look; a stamp with the number before would hide that

    def append(self, partition: int, rows: pa.RecordBatch, number: int) -> Appended | None:
        """Adds the rows of a batch; None if that batch is there already."""
        if self._numbers[partition] >= number:
            return None
        made = self.topic.append(partition, rows, sender=Sender(self._sender, self._generation, number, gaps=True))
        self._numbers[partition] = number
        return made

    def _fenced(self) -> bool:
        for partition in self.topic.ends():
            last = self.topic.senders(partition).get(self._sender)
            number = last.sequence if last else 0
            if last is None or last.epoch < self._generation:
                try:
                    self.topic.append(partition, _NOTHING, sender=Sender(self._sender, self._generation, number, gaps=True))
                except SequenceGap:
                    return False
            self._numbers[partition] = number
        return True
