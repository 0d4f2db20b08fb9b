"""Deduplication: the ids of the messages that a topic has already, as many and for as long as are kept."""

from collections.abc import Iterator

import orjson

from penstock.core.columns import HEADERS
from penstock.core.time import Clock
from penstock.log.consumer import last_rows
from penstock.log.port import Topic
from penstock.queue.on_log.records import HEADER


class SeenIds:
    """Ids, the oldest first."""

    def __init__(self, most: int, span: int, clock: Clock) -> None:
        """most: how many. span: microseconds."""
        self.most, self._span, self._clock = most, span, clock
        self._ids: dict[str, int] = {}  # and when they came

    def __contains__(self, id: str) -> bool:
        at = self._ids.get(id)
        return at is not None and at > self._clock.now() - self._span

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, id: str, at: int | None = None) -> None:
        self._ids.pop(id, None)
        self._ids[id] = self._clock.now() if at is None else at
        if len(self._ids) > self.most:
            del self._ids[next(iter(self._ids))]

    def read_back(self, topic: Topic, bridge: str) -> None:
        """What a bridge of this name wrote into the topic, as far back as ids are kept."""
        self._ids.clear()
        if self.most:
            for at, id in sorted(_written(topic, bridge, self.most)):
                self.add(id, at)


def _written(topic: Topic, bridge: str, most: int) -> Iterator[tuple[int, str]]:
    for number, start in last_rows(topic, most).items():
        for chunk in topic.read(number, start, columns=[]):
            if HEADERS not in chunk.rows.schema.names:
                continue
            for headers, at in zip(chunk.rows.column(HEADERS).to_pylist(), chunk.appended.tolist(), strict=True):
                id = _id(dict(headers or ()).get(HEADER), bridge)
                if id:
                    yield at, id


def _id(header: bytes | None, bridge: str) -> str | None:
    try:
        found = orjson.loads(header) if header else {}
        return found.get("id") if found.get("bridge") == bridge else None
    except (ValueError, AttributeError):
        return None
