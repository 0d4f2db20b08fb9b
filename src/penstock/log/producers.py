"""Idempotent producers: the last sequences of each, as a partition remembers them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import orjson

from penstock.errors import BadInput, Fenced, SequenceGap
from penstock.log.file.frame import MAX_SENDER
from penstock.log.port import Appended, Frame, Sender

REMEMBERED = 16  # answers kept a producer; older ones are looked up in the log


@dataclass
class _Seen:
    epoch: int
    sequence: int
    answers: dict[int, tuple[int, int]] = field(default_factory=dict)  # sequence: base, rows


class Producers:
    """The last epoch and sequence of every producer of a partition."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def answer(self, sender: Sender, find: Callable[[Sender], Frame | None]) -> Appended | None:
        """The first answer if this was appended already, None if it is next; Fenced or SequenceGap otherwise.

        `find` looks for the frame of an old sequence in the log."""
        seen = self._seen.get(sender.id)
        if seen is None:
            return None
        if sender.epoch > seen.epoch:
            if sender.gaps and sender.sequence < seen.sequence:  # it would hide what an older one appended in the last moment
                raise SequenceGap(
                    f"producer {sender.id} begins epoch {sender.epoch} at {sender.sequence}, but its last is {seen.sequence}",
                    hint="read its last sequence again",
                )
            return None
        if sender.epoch < seen.epoch:
            raise Fenced(
                f"producer {sender.id} was replaced: its epoch is {sender.epoch}, the log has seen {seen.epoch}",
                hint="make a new producer; it starts with a higher epoch",
            )
        if sender.sequence > seen.sequence:
            if sender.gaps or sender.sequence == seen.sequence + 1:
                return None
            raise SequenceGap(f"producer {sender.id} sent {sender.sequence}, but {seen.sequence + 1} is next")
        return self._earlier(seen, sender, find)

    def _earlier(self, seen: _Seen, sender: Sender, find: Callable[[Sender], Frame | None]) -> Appended:
        if sender.sequence in seen.answers:
            return Appended(*seen.answers[sender.sequence], duplicate=True)
        frame = find(sender)
        if frame is None:
            raise SequenceGap(f"producer {sender.id} sent {sender.sequence} after {seen.sequence}, and the log does not hold it")
        return Appended(frame.base, frame.count, duplicate=True)

    def remember(self, frame: Frame) -> None:
        sender = frame.sender
        if sender is None:
            return
        seen = self._seen.get(sender.id)
        if seen is None or seen.epoch != sender.epoch:
            seen = self._seen[sender.id] = _Seen(sender.epoch, sender.sequence)
        seen.sequence = sender.sequence
        seen.answers[sender.sequence] = (frame.base, frame.count)
        if len(seen.answers) > REMEMBERED:
            del seen.answers[next(iter(seen.answers))]

    def remember_all(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            self.remember(frame)

    def places(self, id: str) -> dict[int, tuple[Sender, int]]:
        """Where the frames of a producer's last epoch stand: base offset: stamp and rows, the last frame last."""
        seen = self._seen.get(id)
        return {base: (Sender(id, seen.epoch, q), rows) for q, (base, rows) in seen.answers.items()} if seen else {}

    def last(self) -> dict[str, Sender]:
        """The last stamp of each."""
        return {id: Sender(id, seen.epoch, seen.sequence) for id, seen in self._seen.items()}

    def copy(self) -> "Producers":
        return Producers.decode(self.encode())

    def encode(self) -> bytes:
        rows = [[id, s.epoch, s.sequence, [[q, *a] for q, a in s.answers.items()]] for id, s in self._seen.items()]
        return orjson.dumps(rows)

    @staticmethod
    def decode(data: bytes) -> "Producers":
        """Reads what `encode` wrote; ValueError, KeyError or TypeError if it is something else."""
        producers = Producers()
        for id, epoch, sequence, answers in orjson.loads(data):
            producers._seen[id] = _Seen(epoch, sequence, {q: (base, rows) for q, base, rows in answers})
        return producers


def check_sender(sender: Sender | None) -> None:
    """Refuses a stamp that no frame can carry."""
    if sender is None:
        return
    if not 1 <= len(sender.id.encode(errors="replace")) <= MAX_SENDER or not sender.id.isprintable():
        raise BadInput(f"{sender.id!a} cannot name a producer", hint=f"use 1 to {MAX_SENDER} bytes of printable text")
    if not (0 <= sender.epoch < 2**63 and 0 <= sender.sequence < 2**63):
        raise BadInput(f"producer {sender.id} has the epoch {sender.epoch} and the sequence {sender.sequence}; both start at 0")
