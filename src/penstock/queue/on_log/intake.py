"""What a queue on the log sees of its topic: the records that were not looked at yet become messages of its book."""

import time

from penstock.errors import Mismatch, OffsetGone
from penstock.log.port import Topic
from penstock.queue.on_log import commands
from penstock.queue.on_log.commands import Event
from penstock.queue.on_log.records import TopicMessages
from penstock.queue.on_log.share import Seen, Share
from penstock.queue.port import QueueSpec
from penstock.queue.state.limits import too_old
from penstock.queue.state.machine import Now

AHEAD = 1_000  # messages that are looked at before they are asked for: among so many, the highest priority is found
_GLANCE = 0.002  # seconds between two looks at what other processes sent
_LOOK = 0.02  # the same while enough is ready: until a message of a higher priority is seen


class Lookout:
    """The next records of a topic, for one queue."""

    def __init__(self, topic: Topic, spec: QueueSpec) -> None:
        self._topic, self._spec = topic, spec
        self.stored = TopicMessages(topic)
        self._looked = 0.0

    def glance(self, share: Share, most: int, since: float, now: Now) -> list[Event]:
        """Looks for so many messages, unless that was done a moment ago. since: when this process last sent something."""
        at = time.monotonic()
        if since < self._looked and at - self._looked < (_LOOK if share.book.ready >= most else _GLANCE):
            return []
        self._looked = at
        return self.look(share, max(most, AHEAD), now)

    def look(self, share: Share, most: int | None, now: Now) -> list[Event]:
        """Looks at the next records until so many messages are ready (None, and where there is a limit: at all of them)."""
        self._refuse_another(share)
        if self._spec.limit.policy != "buffer":
            most = None
        events: list[Event] = []
        for partition in range(self._topic.spec.partitions):
            while most is None or share.book.ready < most:
                start = share.next.get(partition, 0)
                seen = self._seen(partition, start, AHEAD if most is None else most - share.book.ready)
                if seen.next == start:
                    break
                events.append(share.admit(seen))
        if events:
            commands.waken(share.book, now)  # some may have waited too long
        return [*events, *self._make_room(share)]

    def unread(self, share: Share) -> int:
        """How many records were not looked at."""
        return sum(end.next - share.next.get(p, 0) for p, end in self._topic.ends().items())

    def pass_over(self, share: Share) -> tuple[int, list[Event]]:
        """Passes over all that is there; how many messages that were."""
        count, events = 0, list[Event]()
        for partition, end in self._topic.ends().items():
            passed = self._count(partition, max(share.next.get(partition, 0), end.first), end.next)
            events.append(share.skip(partition, end.next, passed))
            count += passed
        return count, events

    def _seen(self, partition: int, start: int, most: int) -> Seen:
        try:
            return self.stored.look(partition, start, most, self._spec)
        except OffsetGone as gone:
            name, first = self._spec.name, self._topic.ends()[partition].first
            raise OffsetGone(
                f"{self._spec.origin}/{partition}: records {start} to {first - 1} were removed before queue {name} had lent them",
                hint=f"penstock queue purge {name} goes on with what comes; penstock topic alter keeps records longer",
            ) from gone

    def _count(self, partition: int, start: int, stop: int) -> int:
        count = 0
        while start < stop:
            seen = self.stored.look(partition, start, AHEAD, self._spec)
            if seen.next == start:
                break
            count, start = count + len(seen.items), seen.next
        return count

    def _make_room(self, share: Share) -> list[Event]:
        if self._spec.limit.policy != "drop-oldest":
            return []
        return commands.finish(share.book, too_old(self._spec.limit, share.book), "dropped")

    def _refuse_another(self, share: Share) -> None:
        if share.topic_id != self._topic.id:
            name = self._spec.name
            raise Mismatch(
                f"queue {name} read another topic {self._spec.origin}, which was deleted",
                hint=f"delete the queue and make it again: penstock queue delete {name}",
            )
