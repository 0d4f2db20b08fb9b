"""Groups of a Kafka broker: its own consumer groups, used for who owns what and for offsets. Rows are read by offset as ever.

What Kafka does in its own way: it forgets a group's offsets of a topic when the topic is deleted, and all of them some days after
the last member left (offsets.retention.minutes); it forgets groups only whole; it does not tell when a member was last heard.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from penstock.core.time import Clock, SystemClock
from penstock.errors import BadInput, InUse, NotFound, PenstockError
from penstock.log.groups.names import check_joined, check_reader, no_group
from penstock.log.groups.port import GroupState, InFlight, MemberState, PartitionState, Source
from penstock.log.groups.rules import lease_micros
from penstock.log.holding import Held
from penstock.log.kafka.catalog import INTERNAL
from penstock.log.kafka.client import NEVER_THERE, PROMPT, admin, as_error, coordinated, describe, insisted, library
from penstock.log.kafka.groups.membership import JoinRequest, KafkaMembership, made_again
from penstock.log.kafka.groups.notes import Note, decoded
from penstock.log.kafka.groups.offsets import read_offsets, write_offsets
from penstock.log.kafka.settings import KafkaSettings

Offsets = dict[str, dict[int, tuple[int, Note]]]  # topic -> partition -> committed offset and what stands beside it


class KafkaGroups:
    """The consumer groups of a broker, all of them or those of a prefix."""

    def __init__(self, settings: KafkaSettings, clock: Clock | None = None) -> None:
        self._settings, self._clock = settings, clock or SystemClock()

    def join(self, group: str, source: Source, begin: Mapping[int, int], *, label: str, lease: float) -> KafkaMembership:
        check_joined(group)
        lease_micros(lease)
        self._begin(group, source, begin)
        return KafkaMembership(self._settings, self._clock, group, source, JoinRequest(label, lease, begin))

    def put(self, group: str, source: Source, offsets: Mapping[int, int]) -> None:
        check_reader(group, offsets)
        known = self._of_source(group, source)
        moved = {
            p: known[p][1].moved if p in known and known[p][0] == offset else self._clock.now() for p, offset in offsets.items()
        }
        self._put(group, source, offsets, moved)

    def forget(self, group: str, topic: str | None = None) -> None:
        topics = set(self._offsets(group))
        if not topics or (topic is not None and topic not in topics):
            raise no_group(group, topic, [group] if topics else list(self._all_offsets()))
        if topic is not None and topics != {topic}:
            raise BadInput(
                f"Kafka deletes a group only as a whole, and {group} reads {', '.join(sorted(topics))}", hint="leave the topic out"
            )
        self._refuse_members(group, topic)
        self._asked(lambda client: client.delete_consumer_groups([self._on_broker(group)], request_timeout=NEVER_THERE))

    def describe(self, group: str | None = None) -> list[GroupState]:
        found = self._all_offsets() if group is None else {group: self._offsets(group)}
        if group is not None and not found[group]:
            raise no_group(group, None, list(self._all_offsets()))
        return [state for name in sorted(found) for state in self._states(name, found[name])]

    def positions(self, topic: str) -> Sequence[Held]:
        found = {name: at.get(topic, {}) for name, at in sorted(self._all_offsets(topic).items())}
        return [Held(name, topic, p, offset, note.moved) for name, at in found.items() for p, (offset, note) in sorted(at.items())]

    def _begin(self, group: str, source: Source, begin: Mapping[int, int]) -> None:
        """Writes down where a group begins that was never here before."""
        known = self._of_source(group, source)
        if any(note.topic_id not in ("", source.id) for _, note in known.values()):
            raise made_again(group, source.topic)
        if known:
            return
        first = {number: begin.get(number, 0) for number in range(source.partitions)}
        with suppress(InUse):  # the group reads other topics: the member that gets a partition of this one commits where it begins
            self._put(group, source, first, dict.fromkeys(first, self._clock.now()))

    def _put(self, group: str, source: Source, offsets: Mapping[int, int], moved: Mapping[int, int]) -> None:
        kafka, name = library(), self._settings.prefix + source.topic
        places = [
            kafka.TopicPartition(name, number, offset, metadata=Note(source.id, moved[number]).encoded())
            for number, offset in offsets.items()
        ]
        refused = write_offsets(self._settings, self._on_broker(group), places)
        if refused is not None:
            self._refuse_members(group, source.topic)
            raise as_error(self._settings, refused, source.topic)

    def _refuse_members(self, group: str, topic: str | None) -> None:
        living = self._members(group)
        if living:
            raise InUse(
                f"group {group} is reading {topic or 'its topics'}",
                *(f"member {member.member_id} ({member.client_id})" for member in living),
                hint="stop them first; one that is dead is gone when its lease runs out",
            )

    def _states(self, group: str, offsets: Offsets) -> list[GroupState]:
        prefix, members = self._settings.prefix, self._members(group)
        found = []
        for topic, at in sorted(offsets.items()):
            owners = {tp.partition: m.member_id for m in members for tp in _assigned(m) if tp.topic == prefix + topic}
            living = [MemberState(m.member_id, m.client_id, None, None) for m in members]
            parts = [self._part(number, *at[number], owners.get(number)) for number in sorted(at)]
            known = next((note.topic_id for _, note in at.values() if note.topic_id), None)
            there = describe(self._settings, prefix + topic) if known is None else None
            found.append(GroupState(group, topic, known or (there.id if there else ""), 0, living, parts))
        return found

    def _part(self, number: int, offset: int, note: Note, owner: str | None) -> PartitionState:
        seconds = max(0.0, (self._clock.now() - note.since) / 1e6)
        in_flight = InFlight(note.in_flight, seconds) if note.in_flight >= 0 and owner else None
        return PartitionState(number, offset, note.moved, owner, in_flight)

    def _all_offsets(self, topic: str | None = None) -> dict[str, Offsets]:
        """Of all groups that have any."""
        prefix = self._settings.prefix
        found = insisted(
            self._settings, "", lambda: admin(self._settings).list_consumer_groups(request_timeout=PROMPT).result(2 * PROMPT)
        )
        ids, places = [g.group_id for g in found.valid if g.group_id.startswith(prefix)], self._partitions(topic)
        offsets = {id.removeprefix(prefix): self._offsets_at(id, places) for id in ids}
        return {group: at for group, at in offsets.items() if at}

    def _members(self, group: str) -> list[Any]:
        asked = [self._on_broker(group)]
        try:
            found = self._asked(lambda client: client.describe_consumer_groups(asked, request_timeout=NEVER_THERE))
        except NotFound:
            return []
        return sorted(found.members, key=lambda member: str(member.member_id))

    def _of_source(self, group: str, source: Source) -> dict[int, tuple[int, Note]]:
        """partition -> committed offset and what stands beside it."""
        places = [library().TopicPartition(self._settings.prefix + source.topic, number) for number in range(source.partitions)]
        return self._offsets_at(self._on_broker(group), places).get(source.topic, {})

    def _offsets(self, group: str) -> Offsets:
        return self._offsets_at(self._on_broker(group), self._partitions())

    def _offsets_at(self, id: str, places: Sequence[Any]) -> Offsets:
        gone = (library().KafkaError.UNKNOWN_TOPIC_OR_PART, library().KafkaError.UNKNOWN_TOPIC_ID)
        found: Offsets = {}
        for place in read_offsets(self._settings, id, places):
            if place.error is not None and place.error.code() not in gone:
                raise as_error(self._settings, place.error, place.topic)  # unknown is not absent: the group would start over
            if place.error is None and place.offset >= 0:
                topic = place.topic.removeprefix(self._settings.prefix)
                found.setdefault(topic, {})[place.partition] = (place.offset, decoded(place.metadata))
        return found

    def _partitions(self, topic: str | None = None) -> list[Any]:
        """The partitions of a topic, or of all that may have offsets."""
        kafka, prefix = library(), self._settings.prefix
        there = insisted(self._settings, "", lambda: admin(self._settings).list_topics(timeout=PROMPT)).topics
        ours = [name for name in there if name.startswith(prefix) and not name.startswith(INTERNAL)]
        names = [name for name in ours if topic in (None, name.removeprefix(prefix))]
        return [kafka.TopicPartition(name, number) for name in names for number in there[name].partitions]

    def _asked(self, ask: Callable[[Any], Any]) -> Any:
        """What the broker answers about one group, once its coordinator is there; NotFound where it knows none of that name."""
        code = library().KafkaError
        try:
            return coordinated(self._settings, lambda client: next(iter(ask(client).values())))
        except PenstockError as error:
            found: Any = error.__cause__.args[0] if error.__cause__ and error.__cause__.args else None
            if hasattr(found, "code") and found.code() in (code.GROUP_ID_NOT_FOUND, code._UNKNOWN_GROUP):
                raise NotFound("there is no such group") from error
            raise

    def _on_broker(self, group: str) -> str:
        return self._settings.prefix + group


def _assigned(member: Any) -> list[Any]:
    return list(member.assignment.topic_partitions) if member.assignment else []
