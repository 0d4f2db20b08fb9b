"""Which intent is next: by when it is due, and one after the other where they share a lane. Pure."""

import heapq
from collections import deque
from dataclasses import dataclass

from penstock.sinks.actions.port import Intent


@dataclass
class Planned:
    """An intent that has no final outcome yet."""

    intent: Intent
    tries: int = 0


class Agenda:
    """Intents that are waiting or under way. Of a lane only the oldest can be taken."""

    def __init__(self) -> None:
        self._planned: dict[int, Planned] = {}  # by offset, the oldest first
        self._lanes: dict[bytes | int, deque[int]] = {}
        self._due: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._planned)

    @property
    def oldest(self) -> int | None:
        """The least offset that has no final outcome; intents are added in their order."""
        return next(iter(self._planned), None)

    def add(self, intent: Intent, tries: int, now: float) -> None:
        self._planned[intent.offset] = Planned(intent, tries)
        lane = self._lanes.setdefault(_lane(intent), deque())
        lane.append(intent.offset)
        if len(lane) == 1:
            heapq.heappush(self._due, (now, intent.offset))

    def due(self) -> float | None:
        """When the next one is due; None: all are under way, or behind one that is."""
        return self._due[0][0] if self._due else None

    def take(self) -> Planned:
        """The next one; it is under way until it is put back or settled."""
        return self._planned[heapq.heappop(self._due)[1]]

    def put_back(self, planned: Planned, due: float) -> None:
        """It is to be tried again then."""
        heapq.heappush(self._due, (due, planned.intent.offset))

    def settle(self, planned: Planned, now: float) -> None:
        """It is done, or dead: the next one of its lane can go."""
        del self._planned[planned.intent.offset]
        name = _lane(planned.intent)
        lane = self._lanes[name]
        lane.popleft()
        if lane:
            heapq.heappush(self._due, (now, lane[0]))
        else:
            del self._lanes[name]


def _lane(intent: Intent) -> bytes | int:
    return intent.offset if intent.lane is None else intent.lane
