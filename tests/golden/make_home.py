"""Writes a whole home with all that a version keeps in one, as a tar: `python tests/golden/make_home.py FILE`.

Flows with state in the middle of their input, one that was drained, one killed between decision and delivery, one that needs
Spark SQL; views, groups, queues with messages in every state. Beside the home the tar holds what it says (`told.json`), and what it
says once the rest of the input was written and every flow drained (`after.json`), both by the version that wrote it. Homes are
opened by every later version and never written again."""

import sys
import tarfile
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import orjson
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1]))

from faults.engine_shop import SparkFree
from golden import home_flows
from penstock import Flow, GroupConsumer, Limit, Queue, View
from penstock.engine.run import loop
from penstock.engine.run.epoch.decision import Decisions
from penstock.engine.run.runtime import Runtime
from penstock.log.open import open_log
from penstock.storage.local import LocalStorage
from penstock.views.directory import list_views

ROWS = 30  # of an epoch, so that there are several
LATER = "later"  # whether it is due is up to the clock


def make(home: Path) -> None:
    log = open_log(home)
    home_flows.make_topics(log)
    home_flows.send_part(log, 0)
    for flow in home_flows.FLOWS:
        go(SparkFree(home), flow(), loop.catch_up)
    go(SparkFree(home), home_flows.ended(), loop.drain)
    killed(home)
    go(Runtime(home), home_flows.sql(), loop.catch_up)
    read_in_groups(home)
    fill_queues(home)


def go(runtime: Runtime, flow: Flow, how: Callable[..., None]) -> None:
    driver = runtime.driver(runtime.plan(flow), buckets=2, threaded=False)
    driver.start()
    how(driver, threading.Event(), lambda report: None, ROWS)
    driver.stop()


class _Killed(BaseException):
    pass


def killed(home: Path) -> None:
    """Decides its second epoch and delivers nothing of it."""
    runtime, left = SparkFree(home), [2]
    driver = runtime.driver(runtime.plan(home_flows.torn()), buckets=2, threaded=False)

    def fail(point: str) -> None:
        left[0] -= point == "after_decide"
        if not left[0]:
            raise _Killed

    driver.context.fail = fail
    driver.start()
    try:
        loop.catch_up(driver, threading.Event(), lambda report: None, ROWS)
    except _Killed:
        driver.release()
        return
    raise AssertionError("the flow ended before it was killed")


def read_in_groups(home: Path) -> None:
    """One group has read everything, another a part."""
    log = open_log(home)
    with GroupConsumer(log, "all", "orders") as consumer:
        for _ in consumer.batches(follow=False):
            pass
    with GroupConsumer(log, "some", "orders", commit="manual") as consumer:
        for _ in consumer.batches(follow=False):
            consumer.commit()
            break


def fill_queues(home: Path) -> None:
    emails = Queue.create("emails", home=home, tries=2)
    emails.send_many([{"number": n} for n in range(6)], key="k", headers={"kind": "test"})
    emails.send(LATER, delay="364 days")
    with emails.consumer(prefetch=1) as consumer:
        (done,) = consumer.receive()
        done.ack()
        (bad,) = consumer.receive()
        bad.reject("not an address")
        (again,) = consumer.receive()
        again.nack()
    Queue.create("parts", home=home, ordered=True, limit=Limit("push-back", messages=100)).send_many(["a", "b"], key="one")
    Queue.create("orders-work", home=home, source="orders")


# what a home says


def told(home: Path) -> dict[str, Any]:
    log = open_log(home)
    groups = log.groups()
    return {
        "views": {name: _rows(_view(home, name)) for name in list_views(home / "views")},
        "topics": {name: _rows(_topic(log, name)) for name in sorted(log.topics()) if not name.startswith("__")},
        "fates": {path.name: _fates(path) for path in sorted((home / "flows").iterdir())},
        "groups": {name: _group(groups, name) for name in ("all", "some")},
        "queues": {name: _queue(home, name) for name in ("emails", "emails.dead", "parts", "orders-work")},
    }


def _view(home: Path, name: str) -> list[dict[str, Any]]:
    with View(home / "views", name) as view:
        return _plain(view.rows())


def _plain(rows: pa.Table) -> list[dict[str, Any]]:
    """Times as numbers: some lie beyond the year 9999."""
    fields = [pa.field(f.name, pa.int64()) if pa.types.is_timestamp(f.type) else f for f in rows.schema]
    return rows.cast(pa.schema(fields)).to_pylist()


def _topic(log: Any, name: str) -> list[dict[str, Any]]:
    topic = log.topic(name)
    return [row for p in topic.ends() for chunk in topic.read(p) for row in _plain(pa.table(chunk.rows))]


def _rows(rows: list[dict[str, Any]]) -> list[str]:
    """As text, in an order that is the same for every version; append times, which no run repeats, are left out."""
    return sorted(repr({k: v for k, v in row.items() if not k.startswith("__")}) for row in rows)


def _fates(path: Path) -> dict[str, dict[str, int]]:
    last = Decisions(LocalStorage(str(path)), path.name).last()
    assert last
    return {step: dict(Counter(counts)) for step, counts in last.fates.items()}


def _group(groups: Any, name: str) -> list[list[int]]:
    (state,) = groups.describe(name)
    return [[p.partition, p.offset] for p in state.partitions]


def _queue(home: Path, name: str) -> list[Any]:
    queue = Queue.open(name, home=home)
    state = queue.state()
    letters = [letter.text for letter in queue.peek(10)] if name != "orders-work" else []
    return [
        state.ready + (state.delayed or 0),
        [text for text in letters if text != LATER],
    ]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        made, later = Path(place, "home"), Path(place, "later")
        make(made)
        copytree(made, later)
        Path(place, "told.json").write_bytes(orjson.dumps(told(later), option=orjson.OPT_INDENT_2))
        home_flows.send_part(open_log(later), 1)
        for each in (*home_flows.FLOWS, home_flows.ended, home_flows.torn):
            go(SparkFree(later), each(), loop.drain)
        go(Runtime(later), home_flows.sql(), loop.drain)
        Path(place, "after.json").write_bytes(orjson.dumps(told(later), option=orjson.OPT_INDENT_2))
        with tarfile.open(sys.argv[1], "w:xz") as tar:
            for name in ("home", "told.json", "after.json"):
                tar.add(Path(place, name), name)
