"""A member of a Kafka consumer group that fetches nothing: its partitions are assigned and paused, and read by offset elsewhere."""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.core.time import Clock
from penstock.errors import BadInput, Fenced, Mismatch, PenstockError
from penstock.log.groups.port import InFlight, Source, Standing
from penstock.log.kafka.client import PATIENCE, as_error, library, translated
from penstock.log.kafka.groups.notes import Note, decoded
from penstock.log.kafka.settings import KafkaSettings

MOMENT = 0.05  # seconds that a heartbeat listens for news


class JoinRequest(NamedTuple):
    """What a new member asks for."""

    label: str
    lease: float  # seconds
    begin: Mapping[int, int]  # where the group begins, where it has no offset


class KafkaMembership:
    """A member of a consumer group (classic protocol, cooperative: only what has to move is taken away).

    A partition that the broker wants back while it is busy is given up at the first heartbeat at which it is not: until then the
    member claims it anew in every round of the group."""

    def __init__(self, settings: KafkaSettings, clock: Clock, group: str, source: Source, request: JoinRequest) -> None:
        self._settings, self._clock, self._group, self._source = settings, clock, group, source
        self._owned: set[int] = set()
        self._committed: dict[int, tuple[int, Note]] = {}
        self._busy: set[int] = set()
        self._asked: set[int] = set()
        self._changes, self._over, self._closed = 0, "", False
        self._request, self._lease = request, request.lease
        with translated(settings):
            self._consumer = library().Consumer(settings.client(**_options(settings.prefix + group, request)))
            self._consumer.subscribe([self._name], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lose)
        try:
            self._id = self._joined()
        except BaseException:
            self.leave()
            raise
        self._heard = time.monotonic()

    @property
    def id(self) -> str:
        return self._id

    def heartbeat(self, source: Source, busy: Mapping[int, InFlight] | None = None) -> Standing:
        self._check_membership()
        if source.id != self._source.id:
            raise made_again(self._group, source.topic)
        self._busy = set(busy or ()) & self._owned
        self._check_lease()
        began = time.monotonic()
        self._listen(MOMENT)
        self._heard = began
        self._give_up([p for p in self._asked if p not in self._busy])
        self._check_membership()
        self._learn()
        self._report(busy or {})
        owned = {number: self._committed[number][0] for number in sorted(self._owned)}
        return Standing(self._changes, owned, frozenset(self._asked & self._owned))

    def commit(self, offsets: Mapping[int, int]) -> None:
        self._check_lease()
        self._busy |= offsets.keys() & self._owned  # what is being committed is not given up meanwhile
        self._listen(0)
        for number, offset in offsets.items():
            if self._over or number not in self._owned:
                raise self._fenced(number)
            if offset < self._committed[number][0]:
                raise BadInput(
                    f"cannot commit {self._source.topic}/{number} at {offset}: "
                    f"group {self._group} is at {self._committed[number][0]} already",
                    hint=f"penstock group reset {self._group} {self._source.topic} --to {offset} reads records again",
                )
        now = self._clock.now()
        kept = {n: self._committed[n][1] for n in offsets}
        moved = {n: now if offset != self._committed[n][0] else kept[n].moved for n, offset in offsets.items()}
        notes = {n: kept[n]._replace(topic_id=self._source.id, moved=moved[n]) for n in offsets}
        self._write({n: (offset, notes[n]) for n, offset in offsets.items()})

    def leave(self) -> None:
        self._over = self._over or "it left"
        self._owned, self._asked = set(), set()
        if not self._closed:
            self._closed = True
            with translated(self._settings):
                self._consumer.close()

    @property
    def _name(self) -> str:
        return self._settings.prefix + self._source.topic

    def _joined(self) -> str:
        """The id that the broker gives."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            self._listen(0.02)
            id = self._consumer.memberid()
            if id:
                return str(id)
        raise PenstockError(f"Kafka did not let a member into group {self._group}", hint="is its coordinator there?")

    def _listen(self, seconds: float) -> None:
        """Lets the client tell what has changed; records do not come, since all is paused."""
        if self._over:
            return
        with translated(self._settings, self._source.topic):
            message = self._consumer.poll(seconds)
        error = message.error() if message is not None else None
        if error is not None and not error.retriable():
            code = library().KafkaError
            if error.code() == code.INVALID_SESSION_TIMEOUT:
                raise BadInput(
                    f"the broker does not accept a lease of {self._lease:g} seconds", error.str(), hint="6 seconds or more is usual"
                )
            if error.code() in (code._MAX_POLL_EXCEEDED, code.UNKNOWN_MEMBER_ID, code.ILLEGAL_GENERATION):
                self._lose(self._consumer, [])
            elif error.fatal():
                raise as_error(self._settings, error, self._source.topic)

    def _assign(self, consumer: Any, places: list[Any]) -> None:
        end = library().OFFSET_END
        mine = [library().TopicPartition(place.topic, place.partition, end) for place in places]
        consumer.incremental_assign(mine)
        if mine:
            consumer.pause(mine)
        self._changes += 1
        for place in places:
            self._owned.add(place.partition)
            self._asked.discard(place.partition)
            self._committed.pop(place.partition, None)

    def _revoke(self, consumer: Any, places: list[Any]) -> None:
        wanted = {place.partition for place in places} & self._owned
        self._changes += 1
        if self._over:
            consumer.incremental_unassign(places)
            return
        self._asked |= wanted & self._busy
        free = [place for place in places if place.partition not in self._busy]
        consumer.incremental_unassign(free)
        self._owned -= {place.partition for place in free}

    def _lose(self, consumer: Any, places: list[Any]) -> None:
        self._owned, self._asked = set(), set()
        self._over = self._over or "its lease ran out"

    def _give_up(self, numbers: list[int]) -> None:
        if numbers:
            self._consumer.incremental_unassign([library().TopicPartition(self._name, number) for number in numbers])
            self._owned -= set(numbers)
            self._asked -= set(numbers)

    def _learn(self) -> None:
        """Asks for the offsets of partitions that are new here."""
        new = [number for number in self._owned if number not in self._committed]
        if not new:
            return
        wanted = [library().TopicPartition(self._name, number) for number in new]
        with translated(self._settings, self._source.topic):
            found = self._consumer.committed(wanted, timeout=PATIENCE)
        for place in found:
            if place.error is not None:  # no answer is not the same as no offset: the group would start over
                raise as_error(self._settings, place.error, self._source.topic)
        for place in found:
            begin = self._request.begin.get(place.partition, 0)
            self._committed[place.partition] = (place.offset if place.offset >= 0 else begin, decoded(place.metadata))
        first = {
            p.partition: (self._committed[p.partition][0], Note(self._source.id, self._clock.now())) for p in found if p.offset < 0
        }
        if first:
            self._written(first)

    def _report(self, busy: Mapping[int, InFlight]) -> None:
        """Writes down the records in flight, where they have changed."""
        changed = {}
        for number in self._owned:
            offset, note = self._committed[number]
            record = busy.get(number)
            if (record.offset if record else -1) != note.in_flight:
                since = self._clock.now() - round(record.seconds * 1e6) if record else 0
                new = note._replace(topic_id=self._source.id, in_flight=record.offset if record else -1, since=since)
                changed[number] = (offset, new)
        if changed:
            self._written(changed)  # if it did not work, the next heartbeat tells it

    def _write(self, what: Mapping[int, tuple[int, Note]]) -> None:
        """Commits under this member's generation; a group that is being shared out anew is waited for."""
        deadline = time.monotonic() + self._lease
        while what and not self._written(what):
            self._busy |= what.keys()
            self._listen(MOMENT)
            if self._over or not what.keys() <= self._owned or time.monotonic() > deadline:
                raise self._fenced(next(iter(what)))

    def _written(self, what: Mapping[int, tuple[int, Note]]) -> bool:
        """Whether the broker took it; False while the group is being shared out, or where the member was fenced."""
        kafka = library()
        places = [kafka.TopicPartition(self._name, n, offset, metadata=note.encoded()) for n, (offset, note) in what.items()]
        try:
            self._consumer.commit(offsets=places, asynchronous=False)
        except kafka.KafkaException as error:
            code = error.args[0].code()
            if code == kafka.KafkaError.UNKNOWN_MEMBER_ID:
                self._lose(self._consumer, [])
            elif code not in (kafka.KafkaError.REBALANCE_IN_PROGRESS, kafka.KafkaError.ILLEGAL_GENERATION):
                raise as_error(self._settings, error.args[0], self._source.topic) from error
            return False
        self._committed |= what
        return True

    def _check_lease(self) -> None:
        """A process that was stopped for longer than its lease was fenced, whether or not the client has noticed: to a group
        without members Kafka would let a client commit that it took for nobody's."""
        if time.monotonic() - self._heard >= self._lease or self._consumer_id() != self._id:
            self._lose(self._consumer, [])

    def _consumer_id(self) -> str:
        return self._id if self._over else str(self._consumer.memberid())

    def _check_membership(self) -> None:
        if self._over:
            self.leave()  # else the client would join again by itself
            raise Fenced(
                f"member {self._id} is no longer in group {self._group}: {self._over}",
                hint="join again; what was not committed is read again by the owner of the partition",
            )

    def _fenced(self, number: int) -> Fenced:
        from penstock.log.kafka.groups.keeper import KafkaGroups

        place = f"{self._source.topic}/{number}"
        if self._over:
            self.leave()
        states = KafkaGroups(self._settings).describe(self._group)
        parts = [part for state in states if state.topic == self._source.topic for part in state.partitions]
        owner = next((part.owner for part in parts if part.partition == number), None)
        return Fenced(
            f"{place} is not owned by member {self._id} of group {self._group}"
            f"{f', {self._over}' if self._over else ''}: nothing was committed",
            f"it belongs to {owner} now" if owner else "nobody owns it now",
            hint="what was not committed is read again by its owner",
        )


def made_again(group: str, topic: str) -> Mismatch:
    return Mismatch(
        f"topic {topic} was deleted and made again since group {group} read it",
        "its offsets mean other records now",
        hint=f"penstock group reset {group} {topic} --to earliest starts the group over",
    )


def _options(group: str, request: JoinRequest) -> dict[str, Any]:
    lease = round(request.lease * 1000)
    return {
        "group.id": group,
        "client.id": request.label,
        "session.timeout.ms": lease,
        "max.poll.interval.ms": lease,
        "heartbeat.interval.ms": min(500, lease // 5),
        "partition.assignment.strategy": "cooperative-sticky",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "latest",
        "allow.auto.create.topics": False,
        "topic.metadata.refresh.interval.ms": 5000,
    }
