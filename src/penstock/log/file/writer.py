"""One partition as its writers see it: frames go in under a lock, and those that wait together share one sync."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from penstock.core.time import Clock
from penstock.errors import PenstockError, StorageError
from penstock.log.file.current import Current, SegmentKeeper
from penstock.log.file.frame import SEGMENT_HEADER, Body, encode_frame
from penstock.log.file.place import Place
from penstock.log.intake.checked import CheckedRows
from penstock.log.port import Appended, Frame, Sender, TopicSpec
from penstock.log.stamp import Tail, stamped
from penstock.storage.together import Together


@dataclass
class Request:
    """One append on its way; `result` or `error` is set when it is decided."""

    spec: TopicSpec
    rows: CheckedRows | None
    body: Body
    mark: int
    sender: Sender | None
    result: Appended | None = None
    error: PenstockError | None = None


class PartitionWriter:
    """Appends of many threads; other processes do the same beside it."""

    def __init__(self, place: Place, clock: Clock, segment_size: int, check_topic: Callable[[], None]) -> None:
        self._place, self._clock = place, clock
        self._keeper = SegmentKeeper(place, segment_size, check_topic)
        self._leader = threading.Lock()
        self._together = Together(self._commit)

    def append(self, request: Request) -> Appended:
        """Returns once the frame is acknowledged."""
        self._together.run(request)
        if request.error:
            raise request.error
        assert request.result
        return request.result

    def close(self) -> None:
        with self._leader:
            self._keeper.drop()

    def _commit(self, group: list[Request]) -> None:
        try:
            with self._leader, self._place.storage.lock(self._place.lock):
                self._commit_locked(group)
        except PenstockError as error:
            _fail(group, error)
        except BaseException:
            _fail(group, StorageError("the append was interrupted; its frame may or may not be there"))
            raise

    def _commit_locked(self, group: list[Request]) -> None:
        try:
            current = self._keeper.current()
            frames, tail = self._frames(group, current)
            if frames:
                self._keeper.write(current, b"".join(frames), tail)
        except BaseException:
            self._keeper.drop()  # it remembers producers whose frames are not there
            raise
        finally:
            self._keeper.leave()

    def _frames(self, group: list[Request], current: Current) -> tuple[list[bytes], Tail]:
        tail, frames = current.tail, []
        at = current.length or SEGMENT_HEADER
        for request in group:
            frame = self._decided(request, tail, current)
            if frame:
                frames.append(encode_frame(frame, request.body, current.length if self._place.durable else at))
                at += len(frames[-1])
                tail = tail.after(frame)
        return frames, tail

    def _decided(self, request: Request, tail: Tail, current: Current) -> Frame | None:
        """The frame to be written; None if the request was answered without one."""
        sender = request.sender
        try:
            answer = current.producers.answer(sender, lambda s: self._keeper.find(current, s)) if sender else None
            if answer is None:
                frame = stamped(request.spec, tail, request.rows, request.mark, sender, self._clock.now())
        except PenstockError as error:
            request.error = error
            return None
        request.result = answer or Appended(frame.base, frame.count, duplicate=False)
        if answer:
            return None
        current.producers.remember(frame)
        return frame


def _fail(group: list[Request], error: PenstockError) -> None:
    """All or nothing: a duplicate in the group may be one of a frame that failed with it."""
    for request in group:
        request.result, request.error = None, request.error or error
