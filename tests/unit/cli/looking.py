"""A home in which a flow has run, without a JVM: a watermark of 10:00:10 written into the stream, then a row of 10:00:08."""

import threading
from pathlib import Path

from faults.engine_shop import SparkFree
from penstock import Producer, Schema, TopicSpec
from penstock.cli.flow.load import load_flows
from penstock.core.time import instant
from penstock.engine.run import loop
from penstock.log.open import open_log

FLOW = """
from penstock import Flow, Hopping, agg
flow = Flow("pages")
views = flow.stream("views", "page string, ms long, at timestamp", time="at", lateness="4 seconds")
slow = views.where("ms > 10", name="slow")
slow.window(Hopping("5 seconds", every="{every}"), by="page").agg(n=agg.count(), name="per_page").view("per_page")
"""
ROWS = (("07", 20), ("06", 1), ("09", 20), None, ("08", 20), ("12", 20), ("02", 20))


def flow_file(directory: Path, every: str = "5 seconds") -> str:
    file = directory / "pages.py"
    file.write_text(FLOW.format(every=every))
    return str(file)


def fill(home: Path) -> None:
    log = open_log(home)
    topic = log.create(TopicSpec("views", 1, Schema.of("page string, ms long, at timestamp"), "at"))
    with Producer(topic, batch_rows=1) as producer:
        for given in ROWS:
            if given is None:
                producer.flush()
                producer.mark(instant("2024-01-15T10:00:10Z"))
            else:
                producer.send({"page": "a", "ms": given[1], "at": f"2024-01-15T10:00:{given[0]}Z"})


def run_flow(home: Path, file: str) -> None:
    """What `penstock run --catch-up` does."""
    runtime = SparkFree(home)
    (graph,) = load_flows([file])
    driver = runtime.driver(runtime.plan(graph), threaded=False)
    driver.start()
    loop.catch_up(driver, threading.Event(), lambda report: None)
    driver.stop()
