"""Writes a small log with all that a format holds: `python tests/golden/make_log.py DIRECTORY [cleaned]`.

The directories beside this file were written by it when each format was the newest one. They are opened by every later version and
never written again."""

import sys
from dataclasses import replace

import orjson
import pyarrow as pa

from penstock.core.columns import EVENT_TIME, HEADERS, KEY, OP, POSITION, WATERMARK
from penstock.core.schema import TIMESTAMP, Schema
from penstock.core.time import FixedClock
from penstock.log.file.log import FileLog
from penstock.log.port import Sender, TopicSpec
from penstock.storage.local import LocalStorage

NOW = 1_700_000_000_000_000
SECOND = 1_000_000
ORDERS = Schema.of("id long, text string, at timestamp")
GROWN = Schema.of("id long, text string, at timestamp, more double")


def orders(ids: list[int], **more: pa.Array) -> pa.RecordBatch:
    times = [NOW + (id * 37 % 20) * SECOND for id in ids]
    own = {"id": pa.array(ids, pa.int64()), "text": [f"row {id}" for id in ids], "at": pa.array(times, TIMESTAMP)}
    keys = pa.array([b"k%d" % (id % 5) for id in ids], pa.binary())
    return pa.record_batch(own | {KEY: keys} | more)


def fill(log: FileLog, clock: FixedClock) -> None:
    typed = log.create(TopicSpec("orders", 2, ORDERS, "at", "id", max_record=10_000))
    for number in range(12):
        clock.set(NOW + number * SECOND)
        ids = list(range(number * 3, number * 3 + 3))
        typed.append(number % 2, orders(ids), sender=Sender("till", 0, number // 2))
        if number % 4 == 0:
            typed.append(number % 2, None, mark=NOW + number * SECOND - 5)
    typed.append(0, orders([100], **{OP: pa.array([3], pa.int8())}))
    log.evolve("orders", GROWN).append(1, orders([101], more=pa.array([1.5])), mark=NOW + 20 * SECOND)
    raw = log.create(TopicSpec("lines", durability="os"))
    headers = pa.array([[("a", b"1")], None], pa.map_(pa.string(), pa.binary()))
    times = pa.array([NOW - 5, NOW + 5], TIMESTAMP)
    raw.append(0, pa.record_batch({"value": [b"\xff\0", None], KEY: [b"x", b"y"], HEADERS: headers, EVENT_TIME: times}))
    written = log.create(TopicSpec("totals", 1, Schema.of("n long"), writer="shop/totals", changelog=True))
    for number in range(4):
        system = {
            EVENT_TIME: pa.array([NOW + number], TIMESTAMP),
            POSITION: [b"p%d" % number],
            WATERMARK: pa.array([None], pa.int64()),
        }
        rows = pa.record_batch({"n": pa.array([number])} | system)
        written.append(0, rows, mark=NOW + number, sender=Sender("shop/totals", 0, number * 2, gaps=True))


def told(log: FileLog) -> dict[str, object]:
    """All that the log says, as JSON."""
    found: dict[str, object] = {}
    for name in log.topics():
        topic = log.topic(name)
        for partition, end in topic.ends().items():
            frames = [
                [
                    f.base,
                    f.count,
                    f.appended,
                    f.least,
                    f.greatest,
                    f.plausible,
                    f.mark,
                    f.time_before,
                    f.mark_before,
                    list(f.sender or ()),
                ]
                for f in topic.frames(partition)
            ]
            rows = [repr(row) for chunk in topic.read(partition) for row in chunk.rows.to_pylist()]
            found[f"{name}/{partition}"] = {"end": end[:5], "frames": frames, "rows": rows}
    return found


if __name__ == "__main__":
    clock = FixedClock(NOW)
    made = FileLog(LocalStorage(f"{sys.argv[1]}/log"), clock, segment_size=1_500)
    fill(made, clock)
    for topic in made.topics() if "cleaned" in sys.argv else []:
        made.alter(replace(made.topic(topic).spec, compact=topic == "lines"))
        made.clean(topic)
    with open(f"{sys.argv[1]}/told.json", "wb") as file:
        file.write(orjson.dumps(told(made), option=orjson.OPT_INDENT_2))
