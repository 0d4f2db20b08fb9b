"""The owner of a topic, and the last epoch its flow has written: from the topic's settings and the stamps on its last frames."""

from dataclasses import dataclass, field

from penstock.core.schema import Schema
from penstock.core.time import NEVER
from penstock.errors import AlreadyThere, BadFlow, BadSchema, Mismatch, NotFound
from penstock.log.port import Log, Sender, Topic, TopicSpec
from penstock.sinks.port import Marker, SinkSpec


@dataclass
class Survey:
    """What a flow's sink has written to a topic so far."""

    producer: str = ""  # flow/sink
    incarnation: str = ""
    generation: int = -1  # the greatest that wrote
    epoch: int = -1  # the last epoch that is wholly there
    sequences: dict[int, int] = field(default_factory=dict)  # partition -> sequence of the last frame; 0: no epoch yet
    marks: dict[int, int] = field(default_factory=dict)

    @property
    def sender(self) -> str:
        return f"{self.producer}/{self.incarnation}"


def owned_topic(log: Log, spec: SinkSpec, name: str, partitions: int, key: tuple[str, ...]) -> Topic:
    """The topic, made if it is missing; Mismatch if another writes it or it has another shape."""
    if spec.updating and not key:
        raise BadFlow(f"topic {name!r} cannot take rows that change: they have no key", f"flow {spec.flow}", hint="give them a key")
    schema = Schema.of(spec.schema.ddl())
    named = ",".join(key) if spec.updating else key[0] if len(key) == 1 else None
    try:
        topic = log.topic(name)
    except NotFound:
        made = TopicSpec(name, partitions, schema, key=named, writer=spec.flow, changelog=spec.updating, ordered=spec.ordered)
        topic = _created(log, made)
    _check(topic.spec, spec.flow, partitions)
    if topic.spec.changelog != spec.updating or (spec.updating and topic.spec.key != named):
        raise _other_rows(topic.spec, spec, named)
    if topic.spec.schema != schema:
        try:
            topic = log.evolve(name, schema)
        except BadSchema as error:
            raise Mismatch(
                f"topic {name!r} has another schema than flow {spec.flow!r} writes now: {error.what}",
                *error.detail,
                hint=error.hint,
            ) from error
    return topic


def _other_rows(found: TopicSpec, spec: SinkSpec, key: str | None) -> Mismatch:
    there, now = (f"rows that change, by {k}" if changes else "rows that stay" for changes, k in _kinds(found, spec, key))
    return Mismatch(
        f"topic {found.name!r} holds {there}; flow {spec.flow!r} now writes {now}",
        hint=f"choose another name in .to(…); or start the flow over: penstock flow reset {spec.flow}",
    )


def _kinds(found: TopicSpec, spec: SinkSpec, key: str | None) -> tuple[tuple[bool, str | None], ...]:
    return (found.changelog, found.key), (spec.updating, key)


def _created(log: Log, wanted: TopicSpec) -> Topic:
    try:
        return log.create(wanted)
    except AlreadyThere:  # another driver was quicker; its topic is looked at like any other
        return log.topic(wanted.name)


def _check(found: TopicSpec, flow: str, partitions: int) -> None:
    if found.writer != flow:
        by = f"flow {found.writer!r}" if found.writer else "producers"
        left = f"; if it is empty and a killed start of version 0.1 left it: penstock topic delete {found.name}"
        raise Mismatch(
            f"flow {flow!r} cannot write topic {found.name!r}: it is written by {by}",
            hint="choose another name in .to(…)" + ("" if found.writer or found.schema else left),
        )
    if found.partitions != partitions:
        raise Mismatch(
            f"topic {found.name!r} has {found.partitions} partitions, flow {flow!r} wants {partitions}",
            hint="a flow's topic keeps its number of partitions; choose another name in .to(…)",
        )


def sequence_of(epoch: int) -> int:
    """The sequence number of an epoch's frames; 0 is before the first epoch."""
    return epoch + 1


def survey(topic: Topic, producer: str, incarnation: str) -> Survey:
    """Reads the last epoch of the producer. Epochs are delivered in order, and the last partition is written last: all before the
    newest epoch are whole, and the newest is if it stands in the last partition."""
    ends = topic.ends()
    last = {p: _last_sender(topic, p, producer + "/") for p in ends}
    senders = [s for s in last.values() if s]
    seen = Survey(producer, incarnation, marks={p: end.mark for p, end in ends.items() if end.mark > NEVER})
    seen.sequences = {p: s.sequence if s else 0 for p, s in last.items()}
    if senders:
        seen.incarnation = next((s.id for s in senders if s.id != seen.sender), seen.sender).removeprefix(producer + "/")
        seen.generation = max(s.epoch for s in senders)
        newest = max(seen.sequences.values()) - sequence_of(0)
        seen.epoch = newest if seen.sequences[max(ends)] == sequence_of(newest) else newest - 1
    return seen


def unwritten(log: Log, spec: SinkSpec, name: str, ours: Marker) -> bool:
    """Whether a topic of this flow has taken no epoch, from whichever life of it, and no later start has opened it: a flow that
    has delivered nothing owns nothing. Such a topic can be made anew."""
    topic = log.topic(name)
    if topic.spec.writer != spec.flow:
        return False
    ends = topic.ends()
    stamps = [(id, sender) for partition in ends for id, sender in topic.senders(partition).items()]
    later = any(id.endswith(f"/{ours.incarnation}") and sender.epoch > ours.generation for id, sender in stamps)
    empty = not topic.headers or all(end.next == 0 for end in ends.values())  # a broker gives offsets to its own notes, too
    return empty and not later and all(sender.sequence == 0 for _, sender in stamps)


def _last_sender(topic: Topic, partition: int, prefix: str) -> Sender | None:
    """The last stamp of the producer; of several lives of it, that of the one whose generation is greatest."""
    own = [sender for id, sender in topic.senders(partition).items() if id.startswith(prefix)]
    return max(own, key=lambda sender: (sender.epoch, sender.sequence), default=None)
