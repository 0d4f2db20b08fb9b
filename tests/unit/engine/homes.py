"""A home as `penstock run` makes it, with flows that run in this process."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock import Flow
from penstock.core.schema import Schema
from penstock.engine.run import loop
from penstock.engine.run.context import Fail, FlowContext
from penstock.engine.run.driver import Driver
from penstock.engine.run.epoch.decision import Decisions
from penstock.engine.run.offsets import OffsetPublisher
from penstock.engine.run.outputs import targets
from penstock.engine.run.planning import Planner, facts_of, topics_read
from penstock.log.file.log import FileLog
from penstock.log.port import TopicSpec
from penstock.log.producer import Producer
from penstock.sinks.port import nothing
from penstock.storage.local import LocalStorage
from penstock.views.view import View

ORDERS = "id long, amount long, at timestamp"


class NoAnalyzer:
    """Expressions in these tests need no Spark."""

    def type_of(self, sql: str, schema: Schema) -> Any:
        raise AssertionError(sql)


class Home:
    """Its log, its flows, its views; nothing is synced."""

    def __init__(self, path: Path) -> None:
        self.path, self.log = path, FileLog(LocalStorage(path / "log", sync=False))
        self.said: list[str] = []  # while flows were planned

    def send(
        self, topic: str, *rows: Mapping[str, Any], schema: str = ORDERS, time: str | None = "at", partitions: int = 1
    ) -> None:
        if topic not in self.log.topics():
            self.log.create(TopicSpec(topic, partitions, Schema.of(schema), time))
        with Producer(self.log.topic(topic)) as producer:
            for row in rows:
                producer.send(row)

    def driver(self, flow: Flow, fail: Fail = nothing) -> Driver:
        storage = LocalStorage(self.path / "flows" / flow.name, sync=False)
        make = targets(self.log, storage, self.path / "views", fail)
        context = FlowContext(self.log, storage, make, fail=fail, publish_offsets=OffsetPublisher(self.log, flow.name, 0).publish)
        planner = Planner(flow, NoAnalyzer(), facts_of(self.log, topics_read(flow)))
        return Driver(planner.plan(Decisions(storage, flow.name), self.said.append), context)

    def run(self, flow: Flow, drain: bool = False, most: int | None = None) -> Driver:
        """To the end of what is there, or to the end of time; the driver, stopped. most: rows of an epoch."""
        driver = self.driver(flow)
        driver.start()
        try:
            (loop.drain if drain else loop.catch_up)(driver, threading.Event(), lambda report: None, most)
            driver.deliverer.settle()
        finally:
            driver.release()
        return driver

    def rows(self, view: str) -> list[dict[str, Any]]:
        with View(self.path / "views", view) as found:
            rows: list[dict[str, Any]] = found.rows().to_pylist()
            return rows

    def records(self, topic: str) -> list[dict[str, Any]]:
        found = self.log.topic(topic)
        return [row for p in found.ends() for chunk in found.read(p) for row in chunk.rows.to_pylist()]
