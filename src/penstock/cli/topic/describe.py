"""What is told of a topic: its settings, and what each partition holds."""

from typing import Any

import pyarrow as pa

from penstock.core.arrow import schema_of
from penstock.core.schema import TIMESTAMP
from penstock.core.time import FOREVER, NEVER, duration_text, text
from penstock.engine.diagnose.disorder import disorder
from penstock.log.port import Counting, End, Topic, TopicSpec

LIST = schema_of(
    [
        ("topic", pa.string()),
        ("kind", pa.string()),
        ("partitions", pa.int64()),
        ("rows", pa.int64()),
        ("last_append", TIMESTAMP),
        ("keeps", pa.string()),
    ]
)
PARTITIONS = schema_of(
    [
        ("partition", pa.int64()),
        ("first", pa.int64()),
        ("next", pa.int64()),
        ("rows", pa.int64()),
        ("last_append", TIMESTAMP),
        ("greatest_time", TIMESTAMP),
        ("greatest_mark", pa.string()),
        ("bytes", pa.int64()),
        ("disorder_seconds", pa.float64()),
    ]
)


def summary(topic: Topic) -> dict[str, Any]:
    """One line of the list of topics."""
    found = topic.ends()
    return {
        "topic": topic.spec.name,
        "kind": _kind(topic),
        "partitions": topic.spec.partitions,
        "rows": sum(rows_of(topic, number, end) for number, end in found.items()),
        "last_append": _time(max((end.appended for end in found.values()), default=NEVER)),
        "keeps": keeps(topic.spec),
    }


def settings(topic: Topic) -> dict[str, str]:
    """The settings of a topic, by the words of the command line."""
    spec = topic.spec
    by = f"by {spec.partition_by}" if spec.partition_by else "by key" if spec.key else "partition 0, where none is named"
    told = {
        "topic": spec.name,
        "id": topic.id,
        "kind": _kind(topic),
        "schema": spec.schema.ddl() if spec.schema else None,
        "time": spec.time or "time of writing",
        "key": spec.key,
        "partitions": f"{spec.partitions} ({by})" if spec.partitions > 1 else "1",
        "durability": str(_more(topic).get("durability", spec.durability)),
        "codec": _more(topic).get("codec"),
        "broker": _more(topic).get("broker"),
        "future": duration_text(spec.future),
        "max record": f"{spec.max_record:,} bytes",
        "keeps": keeps(spec),
        "hold": f"{duration_text(spec.hold)} longer, for readers that are behind" if keeps(spec) != "all" else None,
        "written by": f"flow {spec.writer}" if spec.writer else None,
    }
    return {word: value for word, value in told.items() if value is not None}


def keeps(spec: TopicSpec) -> str:
    """What retention and compaction leave, in words."""
    found = [f"{duration_text(spec.retain)}"] if spec.retain is not None else []
    found += [f"{spec.retain_bytes:,} bytes a partition"] if spec.retain_bytes is not None else []
    found += [f"the latest of every key, deletes {duration_text(spec.tombstones)}"] if spec.compact else []
    return " · ".join(found) or "all"


def losses(topic: Topic) -> list[str]:
    """What retention removed although somebody had not read it."""
    if not isinstance(topic, Counting):
        return []
    return [
        f"{text(lost.at)}: offsets {lost.first} to {lost.end - 1} of partition {number} were removed; "
        f"{lost.reader} had not read them"
        for number in sorted(topic.ends())
        for lost in topic.lost(number)
    ]


def rows_of(topic: Topic, number: int, end: End) -> int:
    return topic.rows(number) if isinstance(topic, Counting) else end.next - end.first


def partitions(topic: Topic) -> list[dict[str, Any]]:
    """What each partition holds."""
    return [_partition(topic, number, end) for number, end in sorted(topic.ends().items())]


def _partition(topic: Topic, number: int, end: End) -> dict[str, Any]:
    if not topic.headers:  # nothing but offsets is known before rows are read
        return {"partition": number, "first": end.first, "next": end.next, "last_append": _time(end.appended)}
    measured = disorder(topic, None, [number])
    return {
        "partition": number,
        "first": end.first,
        "next": end.next,
        "rows": rows_of(topic, number, end),
        "last_append": _time(end.appended),
        "greatest_time": _time(end.time),
        "greatest_mark": None if end.mark == NEVER else text(end.mark),
        "bytes": sum(frame.where[2] for frame in topic.frames(number, end.first)),
        "disorder_seconds": measured.worst / 1e6 if measured.rows else None,
    }


def _more(topic: Topic) -> dict[str, Any]:
    """What the log's own kind of topic has to say."""
    return topic.describe() if hasattr(topic, "describe") and not topic.headers else {}


def _kind(topic: Topic) -> str:
    return "changelog" if topic.spec.changelog else "typed" if topic.spec.schema else "raw"


def _time(us: int) -> int | None:
    return None if us <= NEVER or us >= FOREVER else us
