"""The batches of a Spark stream into a topic, each exactly once by its number.

Spark repeats a batch whenever it cannot know that the sink had it, and may repeat it with other rows. So a batch is first decided
(one exclusive write that names its staged files), then appended, each frame under a number made of the batch's. Whoever comes
again finds the decision, appends the same frames, and the log leaves out those it has. The last partition is written last, and
has a frame of every batch: it tells whether a batch is whole.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress

import orjson
import pyarrow as pa

from penstock.engine.datasource.staging import Part, frames, staged_schema
from penstock.errors import AlreadyThere, Mismatch, NotFound, StorageError
from penstock.log.port import Frame, Sender, Topic
from penstock.storage.port import Storage

_FRAMES = 1 << 16  # numbers for the frames of one batch
_LAST = _FRAMES - 1  # that of the last frame of a partition, whatever their number


class Ingest:
    """One named writer of one topic. The writer belongs to the checkpoint it was first used with."""

    def __init__(self, storage: Storage, topic: Topic, writer: str, checkpoint: str) -> None:
        self._storage, self._topic, self._checkpoint, self._writer = storage, topic, checkpoint, writer
        self._directory = f"{topic.spec.name}/{writer}"
        self._sender = f"{sender_of(writer)}{checkpoint}"

    def staging(self, batch: int) -> str:
        """Where tasks put the files of a batch."""
        return f"{self._directory}/staged/{batch}"

    def commit(self, batch: int, parts: Sequence[Part]) -> bool:
        """Adds the batch, unless the topic has it; whether it did. A batch without rows leaves no trace."""
        self._belong()
        if not parts or self._whole(batch):
            self._sweep(batch)
            return False
        decided = self._decide(batch, parts)
        # Looked at again: an older driver may have slept since the last look, and the decision it missed be swept by now.
        if not self._whole(batch):
            self._append(batch, decided)
        self._sweep(batch)
        return True

    def abandon(self, batch: int, parts: Iterable[Part]) -> None:
        """Removes staged files of a batch that failed; not those that it was decided to append."""
        kept = {part.path for part in self._decided(batch) or ()}
        for part in parts:
            if part.path not in kept:
                self._storage.remove(part.path)

    def _belong(self) -> None:
        """Binds the writer to topic and checkpoint at its first batch; Mismatch if one of the two is another now."""
        path, ours = f"{self._directory}/life.json", {"topic": self._topic.id, "checkpoint": self._checkpoint}
        with suppress(AlreadyThere):
            self._storage.publish(path, orjson.dumps(ours))
            return
        known = orjson.loads(bytes(self._storage.read(path)))
        if known == ours:
            return
        if known["topic"] == ours["topic"]:
            raise self._other_checkpoint()
        if known["checkpoint"] == ours["checkpoint"]:
            raise self._other_topic()
        self._storage.remove(f"{self._directory}/decided")  # both are new: it starts over
        self._storage.remove(path)
        self._storage.publish(path, orjson.dumps(ours))

    def _decide(self, batch: int, parts: Sequence[Part]) -> Sequence[Part]:
        """The parts of this batch, once and for all: whoever comes first decides."""
        try:
            self._storage.publish(self._decision(batch), orjson.dumps([list(part) for part in parts]))
            return parts
        except AlreadyThere:
            return self._decided(batch) or parts

    def _decided(self, batch: int) -> list[Part] | None:
        try:
            return [Part(*part) for part in orjson.loads(bytes(self._storage.read(self._decision(batch))))]
        except NotFound:
            return None

    def _append(self, batch: int, parts: Sequence[Part]) -> None:
        last = self._topic.spec.partitions - 1
        try:
            for number in range(last + 1):
                own = [part for part in parts if part.partition == number]
                self._append_partition(number, batch, own, whole=number == last)
        except NotFound as gone:
            if not self._whole(batch):  # else another driver has appended and swept it meanwhile
                raise StorageError(
                    f"batch {batch} of writer {self._writer} was decided, and its staged file is gone", str(gone)
                ) from gone

    def _append_partition(self, number: int, batch: int, parts: Sequence[Part], whole: bool) -> None:
        before: pa.RecordBatch | None = None
        count = 0
        for rows in frames(self._storage, parts):
            if before is not None:
                self._topic.append(number, before, sender=self._stamp(batch, count))
                count += 1
            before = rows
        if before is None and whole:
            before = pa.RecordBatch.from_pylist([], staged_schema(self._topic.spec))
        if before is not None:
            self._topic.append(number, before, sender=self._stamp(batch, _LAST))

    def _stamp(self, batch: int, frame: int) -> Sender:
        return Sender(self._sender, 0, batch * _FRAMES + frame, gaps=True)

    def _whole(self, batch: int) -> bool:
        """Whether the topic has all of the batch; Mismatch if it has a later one."""
        stamp = self._last_stamp()
        if stamp is None or stamp.sequence < batch * _FRAMES + _LAST:
            return False
        if batch_of(stamp) > batch:
            raise Mismatch(
                f"writer {self._writer} comes with batch {batch}; topic {self._topic.spec.name} has its batch {batch_of(stamp)}",
                "the checkpoint is older than the topic: a copy was put back, or another query runs with it",
                hint="go on with the checkpoint as it was; rows of a batch that the topic has are not added again",
            )
        return True

    def _last_stamp(self) -> Sender | None:
        """The writer's newest stamp in the last partition."""
        return self._topic.senders(self._topic.spec.partitions - 1).get(self._sender)

    def _sweep(self, batch: int) -> None:
        """Batches up to this one are whole: their decisions and files have done their work."""
        for kind in ("decided", "staged"):
            for name in self._storage.list(f"{self._directory}/{kind}"):
                if int(name.partition(".")[0]) <= batch:
                    self._storage.remove(f"{self._directory}/{kind}/{name}")

    def _decision(self, batch: int) -> str:
        return f"{self._directory}/decided/{batch}.json"

    def _other_checkpoint(self) -> Mismatch:
        return Mismatch(
            f"writer {self._writer} has written topic {self._topic.spec.name} from another checkpoint",
            "with this one Spark counts its batches from 0 again, and batches the topic has could not be told from new ones",
            hint="go on with the checkpoint it was begun with; under another name the stream is added from its start",
        )

    def _other_topic(self) -> Mismatch:
        return Mismatch(
            f"topic {self._topic.spec.name} was deleted and made again since writer {self._writer} began to write it",
            "this checkpoint goes on behind rows that are no more in the topic",
            hint="start with a new checkpoint to write the whole stream, or give the writer another name to go on from here",
        )


def sender_of(writer: str) -> str:
    """How the stamps of a writer begin."""
    return f"ingest/{writer}/"


def batch_of(sender: Sender) -> int:
    """The number of the batch that a frame with this stamp belongs to."""
    return sender.sequence // _FRAMES


def written(topic: Topic, writer: str, since: dict[int, int]) -> tuple[int, int]:
    """How many rows, in how many batches, the writer has added behind these offsets."""
    own: list[Frame] = []
    for number, start in since.items():
        own += [f for f in topic.frames(number, start) if f.count and f.sender and f.sender.id.startswith(sender_of(writer))]
    return sum(f.count for f in own), len({batch_of(f.sender) for f in own if f.sender})
