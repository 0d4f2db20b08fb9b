"""What a producer has left open is ended before it writes again: committed where its stamp is, else given up; never guessed."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from penstock.errors import Unreachable
from penstock.log.kafka.client import describe, ends
from penstock.log.kafka.headers import SENDER, sender_of
from penstock.log.kafka.read.ranges import read_range, wait_until_seen
from penstock.log.kafka.settings import KafkaSettings
from penstock.log.kafka.write.hanging import Leftover, Partition, Pick, frames_of, left_open, stamps_of, still_open
from penstock.log.kafka.write.senders import NAME, senders, stamp_of
from penstock.log.kafka.write.transactions import KafkaTransactions
from penstock.log.port import Sender
from penstock.log.producers import Producers

Found = dict[Partition, list[Leftover]]


@dataclass(frozen=True)
class Recovery:
    """Of one producer of a topic."""

    settings: KafkaSettings
    topic: str  # by its name on the broker
    topic_id: str
    sender: str

    @property
    def id(self) -> str:
        return f"penstock/{self.topic}/{self.sender}"

    def stamps(self, transaction: KafkaTransactions, partitions: Sequence[int]) -> None:
        """Ends stamps that hang, of these partitions and those whose stamps stand beside them. Such a stamp does not show whether
        its frame was committed; the frame itself does. Where both hang, nobody was notified, and both are aborted."""
        places = sorted({(NAME, stamp_of(self.topic_id, p, self.sender).partition) for p in partitions})
        mine = stamps_of(self.topic_id, self.sender, self.id)
        found = self._left(places, mine)
        stamps = [stamp for stamp in chain.from_iterable(found.values()) if stamp.sender]
        if not found:
            return
        rows = self._left(sorted({(self.topic, stamp.partition) for stamp in stamps}), frames_of(self.sender, self.id))
        outcomes = {self._outcome(stamp, rows) for stamp in stamps} - {None}
        if len(outcomes) > 1:
            raise self._refusal(NAME, places[0][1])
        commit = outcomes == {True} or (not outcomes and any(self._elsewhere(stamp) for stamp in stamps))
        self._end(transaction, found | rows, commit=commit)

    def rows(self, transaction: KafkaTransactions, known: dict[int, Producers]) -> None:
        """Ends rows that hang. known: what the stamps say of these partitions."""
        found = self._left([(self.topic, p) for p in known], frames_of(self.sender, self.id))
        kept, given_up = Found(), Found()
        for place, frames in found.items():
            stamps = known[place[1]].places(self.sender)
            # A stamp without records has the base of the frame behind it: it is the number that tells them apart.
            stamped = {_same(stamps.get(frame.offset, (None, 0))[0], frame.sender) for frame in frames if frame.sender}
            if len(stamped) > 1 or (stamped == {False} and frames[0].offset < max(stamps, default=-1)):
                raise self._refusal(*place)
            (kept if True in stamped else given_up)[place] = frames
        self._end(transaction, kept, commit=True)
        self._end(transaction, given_up, commit=False)

    def _left(self, places: Sequence[Partition], mine: Pick) -> Found:
        found = {place: left_open(self.settings, place, mine) for place in still_open(self.settings, places)}
        return {place: ours for place, ours in found.items() if ours}

    def _end(self, transaction: KafkaTransactions, found: Found, *, commit: bool) -> None:
        transaction.end(list(found), commit=commit)
        wait_until_seen(self.settings, {place: ours[-1].offset + 1 for place, ours in found.items()})

    def _outcome(self, stamp: Leftover, rows: Found) -> bool | None:
        """Whether the transaction of a stamp was committed, as its frame tells; None if that hangs, too."""
        place = self.topic, stamp.partition
        if any(frame.offset == stamp.base and _same(frame.sender, stamp.sender) for frame in rows.get(place, ())):
            return None
        return self._there(stamp)

    def _there(self, stamp: Leftover) -> bool:
        """Whether the frame of a stamp is there for readers."""
        if stamp.base >= ends(self.settings, [(self.topic, stamp.partition)])[self.topic, stamp.partition]:
            return False
        pieces = read_range(self.settings, self.topic, self.topic_id, stamp.partition, stamp.base, stamp.base + 1)
        headers = [header for piece in pieces for header in piece.headers.named(SENDER.encode())[1].to_pylist()]
        return any(found and _same(found[0], stamp.sender) for found in map(sender_of, headers))

    def _elsewhere(self, stamp: Leftover) -> bool:
        """Whether a stamp of the same number is committed in another partition: it may be one of the same transaction. A frame that
        has a stamp is whole: to commit it is right in any case."""
        topic = describe(self.settings, self.topic)
        if not topic or not stamp.sender:
            return False
        others = [stamp_of(self.topic_id, p, self.sender) for p in range(topic.partitions) if p != stamp.partition]
        return any(_same(last, stamp.sender) for other in others for last in senders(self.settings).seen(other).last().values())

    def _refusal(self, topic: str, partition: int) -> Unreachable:
        return Unreachable(
            f"frames of producer {self.sender} with and without a stamp hang in {topic}/{partition}",
            "the broker was killed and has not ended their transactions; ending them now would lose some, or duplicate others",
            hint="see kafka-transactions.sh find-hanging; read the partition uncommitted to tell which of them are wanted",
        )


def _same(one: Sender | None, other: Sender | None) -> bool:
    """Whether two stamps are of one frame."""
    return one is not None and other is not None and one[:3] == other[:3]
