"""Messages on their way into a topic: those that several threads send at once go as one frame."""

from collections.abc import Callable, Iterator, Sequence

from penstock.errors import BadInput, PenstockError, StorageError
from penstock.log.port import Topic
from penstock.queue.on_log.records import prepared
from penstock.queue.port import Message
from penstock.storage.together import Together

_MOST = 1 << 20  # bytes of bodies that go together


class _Parcel:
    """What one thread sends."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = messages
        self.size = sum(len(message.body) for message in messages)
        self.error: PenstockError | None = None


class Outbox:
    """Puts messages into one topic, on behalf of one process."""

    def __init__(self, topic: Topic, wall: Callable[[], int]) -> None:
        self._topic, self._wall = topic, wall
        self._together = Together(self._put)

    def put(self, messages: Sequence[Message]) -> None:
        """Returns when they are safe: all of them, or in a topic of several partitions those of each."""
        if self._topic.spec.partitions > 1:  # one that could not be put into the second may be in the first: nobody shares that
            self._append(messages)
            return
        parcel = _Parcel(messages)
        self._together.run(parcel)
        if parcel.error:
            raise parcel.error

    def _put(self, parcels: Sequence[_Parcel]) -> None:
        for group in _groups(parcels):
            try:
                self._append([message for parcel in group for message in parcel.messages])
            except BadInput as error:  # of one of them; nothing was written
                if len(group) == 1:
                    group[0].error = error
                else:
                    for parcel in group:
                        self._put([parcel])
            except PenstockError as error:
                _fail(group, error)
            except BaseException:
                _fail(parcels, StorageError("sending was interrupted; the messages may or may not be there"))
                raise

    def _append(self, messages: Sequence[Message]) -> None:
        rows = prepared(self._topic, messages, self._wall())
        for partition, batch, _ in rows.by_partition():
            self._topic.append(partition, batch)


def _groups(parcels: Sequence[_Parcel]) -> Iterator[list[_Parcel]]:
    """Neighbours, as many as are not too large together."""
    group, size = list[_Parcel](), 0
    for parcel in parcels:
        if group and size + parcel.size > _MOST:
            yield group
            group, size = [], 0
        group.append(parcel)
        size += parcel.size
    yield group


def _fail(parcels: Sequence[_Parcel], error: PenstockError) -> None:
    for parcel in parcels:
        parcel.error = parcel.error or error
