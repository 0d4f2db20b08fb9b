"""Waiting for records: until a log says that there may be more, or for a while where it does not say."""

import time
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from penstock.log.port import Log

POLL = 0.05  # seconds between two looks at a log that does not tell

ReadTo = Mapping[tuple[str, int], int]  # (topic, partition) -> the next offset to be read


class Watch(Protocol):
    """Of some topics, for one reader."""

    @property
    def prompt(self) -> bool:
        """Whether it wakes as soon as there are records. Where not, one has to look every POLL seconds."""
        ...

    def wait(self, seconds: float, read_to: ReadTo) -> None:
        """Returns when there may be records behind these places, after so many seconds at the latest. It may return for nothing."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Watched(Protocol):
    """A log that tells of appends."""

    def watch(self, topics: Sequence[str]) -> Watch:
        """Topics that are not there yet are waited for, too."""
        ...


class Polling:
    """A log that does not tell is looked at again."""

    prompt = False

    def wait(self, seconds: float, read_to: ReadTo) -> None:
        time.sleep(min(seconds, POLL))

    def close(self) -> None:
        """There is nothing to close."""


def watch(log: Log, topics: Sequence[str]) -> Watch:
    return log.watch(topics) if isinstance(log, Watched) else Polling()
