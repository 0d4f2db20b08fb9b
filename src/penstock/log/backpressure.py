"""Push-back for topics: a producer waits while a group is too far behind."""

import time
from dataclasses import dataclass
from datetime import timedelta

from penstock.core.time import duration
from penstock.errors import BadInput, Full, NotFound
from penstock.log.open import open_log
from penstock.log.port import Log, Topic

OFTEN = 0.1  # seconds between two looks at the offsets of the group


@dataclass(frozen=True)
class Behind:
    """Whom a producer waits for: `Producer(topic, behind=Behind("web-analytics", records=100_000))`.

    While the group (of a flow: flow.NAME) has more records of the topic before it, nothing is written: `send` and `flush` wait, and
    then raise Full. One batch may go beyond the limit. A group that never read the topic has all of it before it."""

    group: str
    records: int
    wait: str | timedelta = "10 seconds"
    log: Log | None = None  # where the group is; None: the log of the home


class Gate:
    """Lets a producer pass while the group keeps up."""

    def __init__(self, behind: Behind, topic: Topic) -> None:
        if behind.records < 1:
            raise BadInput(f"a group cannot be {behind.records} records behind at most", hint="records is at least 1")
        self._behind, self._topic, self._groups = behind, topic, (behind.log or open_log()).groups()
        self._wait = duration(behind.wait, "wait").total_seconds()
        self._lag, self._sent, self._looked = 0, 0, 0.0

    def enter(self, sent: int) -> None:
        """Waits until the group is near enough; Full if it is not in time. sent: records that this producer has written so far."""
        deadline = time.monotonic() + self._wait
        while True:
            if time.monotonic() - self._looked >= OFTEN:
                self._lag, self._sent, self._looked = self._lag_now(), sent, time.monotonic()
            if self._lag + sent - self._sent <= self._behind.records:
                return
            if time.monotonic() >= deadline:
                raise self._full(self._lag + sent - self._sent)
            time.sleep(max(0.0, min(deadline, self._looked + OFTEN) - time.monotonic()))

    def _lag_now(self) -> int:
        offsets = self._offsets()
        ends = self._topic.ends()
        return sum(max(0, end.next - max(end.first, offsets.get(number, 0))) for number, end in ends.items())

    def _offsets(self) -> dict[int, int]:
        try:
            states = self._groups.describe(self._behind.group)
        except NotFound:
            return {}
        mine = [state for state in states if (state.topic, state.topic_id) == (self._topic.spec.name, self._topic.id)]
        return {part.partition: part.offset for state in mine for part in state.partitions}

    def _full(self, lag: int) -> Full:
        group, name = self._behind.group, self._topic.spec.name
        never = [] if self._offsets() else [f"group {group} never read it"]
        return Full(
            f"topic {name} is full: group {group} is {lag:,} records behind, and {self._behind.records:,} are allowed",
            *never,
            f"waited {self._wait:g} seconds; what was taken before is kept, and flush tries it again",
            hint=f"start more members of the group, or look what blocks it: penstock group describe {group}",
        )
