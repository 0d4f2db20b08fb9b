"""What is written beside a committed offset: the id of the topic, when the offset moved, and the record its owner has in flight.

Kafka keeps up to 4 KB of text with each committed offset. Other tools may write none; then nothing of this is known.
"""

from typing import NamedTuple

import orjson


class Note(NamedTuple):
    topic_id: str = ""  # not known
    moved: int = 0  # microseconds
    in_flight: int = -1  # the offset in flight, -1 if there is none
    since: int = 0  # microseconds by the wall clock: since when it is in flight

    def encoded(self) -> str:
        return orjson.dumps({"penstock": list(self)}).decode()


def decoded(text: str | None) -> Note:
    try:
        topic_id, moved, in_flight, since = orjson.loads(text or "")["penstock"]
        return Note(str(topic_id), int(moved), int(in_flight), int(since))
    except (ValueError, TypeError, KeyError):
        return Note()
