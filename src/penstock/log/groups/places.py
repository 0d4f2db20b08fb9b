"""Where in a topic a word such as earliest, latest, an offset or a time leads, partition by partition."""

from collections.abc import Mapping
from datetime import datetime

from penstock.core.columns import SHOWN_OFFSET
from penstock.errors import BadInput
from penstock.log.consumer import Where, output_names, read
from penstock.log.port import End, Topic


def offsets_at(topic: Topic, where: Where) -> dict[int, int]:
    """The first offset to be read of every partition. A time means the first row of that event time or later; an offset beyond
    what is there is refused, one that retention has removed means the first that is there."""
    return {number: _offset(topic, number, end, where) for number, end in sorted(topic.ends().items())}


def _offset(topic: Topic, number: int, end: End, where: Where) -> int:
    if isinstance(where, datetime):
        return _first_since(topic, number, end, where)
    if where == "earliest":
        return end.first
    if where == "latest":
        return end.next
    wanted = where.get(number, end.first) if isinstance(where, Mapping) else where
    if not isinstance(wanted, int) or wanted < 0:
        raise BadInput(f"{where!r} is not a position to read from", hint="give earliest, latest, an offset or a time")
    if wanted > end.next:
        raise BadInput(f"{topic.spec.name}/{number} ends at offset {end.next}, before {wanted}", hint="latest is its end")
    return max(wanted, end.first)


def _first_since(topic: Topic, number: int, end: End, since: datetime) -> int:
    column = output_names(topic.spec)[SHOWN_OFFSET]
    for table in read(topic, partitions=[number], start=since, columns=[column]):
        return int(table.column(column)[0].as_py())
    return end.next
