"""One partition as its writers see it: frames are appended under a lock, and a group commit shares one sync."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from penstock.core.time import Clock
from penstock.errors import PenstockError
from penstock.log.file.current import Current, SegmentKeeper
from penstock.log.file.frame import SEGMENT_HEADER, Body, encode_frame
from penstock.log.file.place import Place
from penstock.log.file.reader import Found
from penstock.log.intake.checked import CheckedRows
from penstock.log.port import Appended, End, Frame, Sender, TopicSpec
from penstock.log.stamp import Tail, stamped
from penstock.storage.group_commit import GroupCommit, Pending


@dataclass(frozen=True)
class Request:
    """What one append writes."""

    spec: TopicSpec
    rows: CheckedRows | None
    body: Body
    mark: int
    sender: Sender | None


Decide = Callable[[End, Callable[[int], Iterator[Found]]], Request | None]  # a judge, as the writer asks it
_Group = Sequence[Pending[Request, Appended]]


class PartitionWriter:
    """Appends of many threads; other processes do the same beside it."""

    def __init__(self, place: Place, clock: Clock, segment_size: int, check_topic: Callable[[], None]) -> None:
        self._place, self._clock = place, clock
        self._keeper = SegmentKeeper(place, segment_size, check_topic)
        self._leader = threading.Lock()
        self._appends = GroupCommit(self._commit, "the append was interrupted; its frame may or may not be there")

    def append(self, request: Request) -> Appended:
        """Returns once the frame is acknowledged."""
        return self._appends.run(request)

    def append_judged(self, decide: Decide) -> Appended | None:
        """Writes what is decided under the lock: `decide` gets the end, and what is acknowledged from an offset on."""
        with self._locked() as current:
            request = decide(current.tail.end(self._keeper.first()), partial(self._keeper.since, current))
            current.judged = (current.tail.next, current.length) if current.length else None
            if request is None:
                return None
            frame = stamped(request.spec, current.tail, request.rows, request.mark, None, self._clock.now())
            at = current.length or SEGMENT_HEADER
            data = encode_frame(frame, request.body, current.length if self._place.durable else at)
            self._keeper.write(current, data, current.tail.after(frame))
            current.judged = (current.tail.next, current.length)
            return Appended(frame.base, frame.count, duplicate=False)

    def close(self) -> None:
        with self._leader:
            self._keeper.drop()

    def _commit(self, group: _Group) -> None:
        with self._locked() as current:
            frames, tail = self._frames(group, current)
            if frames:
                self._keeper.write(current, b"".join(frames), tail)

    @contextmanager
    def _locked(self) -> Iterator[Current]:
        """The current segment, for as long as nobody else can write."""
        with self._leader, self._place.storage.lock(self._place.lock):
            try:
                yield self._keeper.current()
            except BaseException:
                self._keeper.drop()  # it remembers producers whose frames are not there
                raise
            finally:
                self._keeper.leave()

    def _frames(self, group: _Group, current: Current) -> tuple[list[bytes], Tail]:
        tail, frames = current.tail, []
        at = current.length or SEGMENT_HEADER
        for pending in group:
            frame = self._decided(pending, tail, current)
            if frame:
                frames.append(encode_frame(frame, pending.request.body, current.length if self._place.durable else at))
                at += len(frames[-1])
                tail = tail.after(frame)
        return frames, tail

    def _decided(self, pending: Pending[Request, Appended], tail: Tail, current: Current) -> Frame | None:
        """The frame to be written; None if the request was answered without one."""
        request, sender = pending.request, pending.request.sender
        try:
            answer = current.producers.answer(sender, lambda s: self._keeper.find(current, s)) if sender else None
            if answer is None:
                frame = stamped(request.spec, tail, request.rows, request.mark, sender, self._clock.now())
        except PenstockError as error:
            pending.error = error
            return None
        pending.result = answer or Appended(frame.base, frame.count, duplicate=False)
        if answer:
            return None
        current.producers.remember(frame)
        return frame
