"""What is written beside a committed offset: of which life of the topic it is, when it moved, and what its owner has in hand.

Kafka keeps up to 4 KB of text with each committed offset. Other tools may write none; then nothing of this is known.
"""

from typing import NamedTuple

import orjson


class Note(NamedTuple):
    topic_id: str = ""  # not known
    moved: int = 0  # microseconds
    hand: int = -1  # the offset in hand, -1 if there is none
    since: int = 0  # microseconds by the wall: when it was taken in hand

    def encoded(self) -> str:
        return orjson.dumps({"penstock": list(self)}).decode()


def decoded(text: str | None) -> Note:
    try:
        topic_id, moved, hand, since = orjson.loads(text or "")["penstock"]
        return Note(str(topic_id), int(moved), int(hand), int(since))
    except (ValueError, TypeError, KeyError):
        return Note()
