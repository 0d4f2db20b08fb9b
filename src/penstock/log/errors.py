"""What every log says when it refuses."""

import difflib

from penstock.core.schema import Schema
from penstock.errors import AlreadyThere, BadInput, BadSchema, NotFound
from penstock.log.port import TopicSpec


def already_there(name: str, other: str) -> AlreadyThere:
    twin = "" if other == name else f", called {other}: names that differ in case alone are one name"
    return AlreadyThere(f"there is a topic {name} already{twin}")


def no_topic(name: str, names: list[str]) -> NotFound:
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else "penstock topic list shows what is there"
    return NotFound(f"there is no topic {name}", hint=hint)


def refuse_codec(spec: TopicSpec) -> None:
    """For logs that store columns."""
    if spec.codec is not None:
        raise BadInput(f"topic {spec.name} cannot have the codec {spec.codec!r}", "this log stores columns; codecs are Kafka's")


def evolves(name: str, newest: Schema | None, schema: Schema) -> bool:
    """Whether the schema is a new version; BadSchema with the reason if it can not be one."""
    if newest is None:
        raise BadSchema(f"topic {name} is raw: it has no columns")
    if newest.arrow.equals(schema.arrow):
        return False
    reason = newest.can_become(schema)
    if reason:
        hint = "a nullable column may be added at the end; for anything else make a new topic"
        raise BadSchema(f"the schema of topic {name} cannot change like this: {reason}", hint=hint)
    return True
