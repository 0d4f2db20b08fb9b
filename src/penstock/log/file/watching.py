"""Waiting for records of the embedded log: every commit writes to a file of its partition, and the system tells of it."""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.errors import NotFound, PenstockError
from penstock.log.file.store import TOPICS, directory_of
from penstock.log.watching import Polling, ReadTo, Watch
from penstock.storage.local import LocalStorage
from penstock.storage.watching import DirectoryWatch, why_not

if TYPE_CHECKING:
    from penstock.log.file.log import FileLog

_ACKNOWLEDGED = ".acks"  # the ending of the files that say how far a partition is acknowledged


class FileWatch:
    """Wakes when something is acknowledged in one of these topics, whoever wrote it."""

    prompt = True

    def __init__(self, log: "FileLog", topics: Sequence[str]) -> None:
        self._log, self._topics = log, topics
        self._watch = DirectoryWatch(_ACKNOWLEDGED)
        try:
            self._look()
        except BaseException:
            self._watch.close()
            raise

    def wait(self, seconds: float, read_to: ReadTo) -> None:
        if not self._watch.wait(seconds) or self._watch.made:
            try:
                self._look()  # partitions, and topics, may have been added
            except (OSError, PenstockError):  # the system has no more watches; or the topic is damaged, which its reader will say
                Polling().wait(seconds, read_to)

    def _look(self) -> None:
        self._watch.watch(directory for topic in self._topics for directory in self._directories(topic))

    def _directories(self, topic: str) -> list[str]:
        with suppress(NotFound):
            return self._log.topic(topic).directories()
        storage = self._log.storage
        assert isinstance(storage, LocalStorage)
        return [f"{storage.root}/{TOPICS}", f"{storage.root}/{directory_of(topic)}"]

    def close(self) -> None:
        self._watch.close()


def file_watch(log: "FileLog", topics: Sequence[str]) -> Watch:
    """Polling where the system does not tell, or has no more watches to give."""
    if not isinstance(log.storage, LocalStorage) or why_not(log.storage.root):
        return Polling()
    try:
        return FileWatch(log, topics)
    except (OSError, PenstockError):
        return Polling()
