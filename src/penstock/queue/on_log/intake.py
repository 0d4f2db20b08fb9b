"""Reads the topic of a queue on the log: records that were not read yet become messages of the queue."""

import time

from penstock.errors import Mismatch, OffsetGone
from penstock.log.port import Topic
from penstock.queue.on_log.events import AnyEvent, Skipped, admitted
from penstock.queue.on_log.state import LogQueueState
from penstock.queue.on_log.topic_messages import TopicMessages
from penstock.queue.port import QueueSpec
from penstock.queue.state.clock import Now
from penstock.queue.state.limits import too_old
from penstock.queue.state.transitions import finish

AHEAD = 1_000  # messages that are read before they are asked for: among so many, the highest priority is found
_POLL = 0.002  # seconds between two looks at what other processes sent
_POLL_READY = 0.02  # the same while enough is ready: until a message of a higher priority is seen


class Intake:
    """The next records of a topic, for one queue."""

    def __init__(self, topic: Topic, spec: QueueSpec) -> None:
        self._topic, self._spec = topic, spec
        self.stored = TopicMessages(topic, spec)
        self._polled = 0.0

    def poll(self, state: LogQueueState, most: int, since: float, now: Now) -> list[AnyEvent]:
        """Reads so many messages, unless that was done a moment ago. since: when this process last sent something."""
        at = time.monotonic()
        if since < self._polled and at - self._polled < (_POLL_READY if state.machine.ready >= most else _POLL):
            return []
        self._polled = at
        return self.read(state, max(most, AHEAD), now)

    def read(self, state: LogQueueState, most: int | None, now: Now) -> list[AnyEvent]:
        """Reads the next records until so many messages are ready (None, and where there is a limit: all of them)."""
        if state.topic_id != self._topic.id:
            raise self._another_topic()
        events: list[AnyEvent] = []
        for partition in range(self._topic.spec.partitions):
            events += self._read_partition(state, partition, most if self._spec.limit.policy == "buffer" else None)
        if events:
            state.machine.advance(now)  # some may have expired before they were read
        if self._spec.limit.policy == "drop-oldest":
            events += finish(state.machine, too_old(self._spec.limit, state.machine), "dropped")
        return events

    def _read_partition(self, state: LogQueueState, partition: int, most: int | None) -> list[AnyEvent]:
        machine, events, at_end = state.machine, list[AnyEvent](), False
        while not at_end and (most is None or machine.ready < most):
            start = state.next.get(partition, 0)
            try:
                _, next, items, at_end = self.stored.read(partition, start, AHEAD if most is None else most - machine.ready)
            except OffsetGone as gone:
                raise self._records_gone(partition, start) from gone
            if next == start:
                break
            machine.admit(items)
            state.next[partition] = next
            events.append(admitted(partition, next, items))
        return events

    def unread(self, state: LogQueueState) -> int:
        """How many records were not read."""
        return sum(end.next - state.next.get(p, 0) for p, end in self._topic.ends().items())

    def skip_all(self, state: LogQueueState) -> tuple[int, list[AnyEvent]]:
        """Passes over all that is there; how many messages that were."""
        count, events = 0, list[AnyEvent]()
        for partition, end in self._topic.ends().items():
            event = Skipped(partition, end.next, self._count(partition, max(state.next.get(partition, 0), end.first), end.next))
            event.apply(state)
            events.append(event)
            count += event.count
        return count, events

    def _count(self, partition: int, start: int, stop: int) -> int:
        count = 0
        while start < stop:
            read = self.stored.read(partition, start, AHEAD)
            if read.next == start:
                break
            count, start = count + len(read.items), read.next
        return count

    def _records_gone(self, partition: int, start: int) -> OffsetGone:
        name, first = self._spec.name, self._topic.ends()[partition].first
        return OffsetGone(
            f"{self._spec.origin}/{partition}: records {start} to {first - 1} were removed before queue {name} had delivered them",
            hint=f"penstock queue purge {name} goes on with what comes; penstock topic alter keeps records longer",
        )

    def _another_topic(self) -> Mismatch:
        name = self._spec.name
        return Mismatch(
            f"queue {name} read another topic {self._spec.origin}, which was deleted",
            hint=f"delete the queue and make it again: penstock queue delete {name}",
        )
