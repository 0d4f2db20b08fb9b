"""Captures beside the flows of one process: they start before the flows and end with them."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from penstock.capture.registry import Captures
from penstock.capture.writing.journal import read_journal
from penstock.cli.cdc.hosting import Host, Hosted
from penstock.cli.cdc.telling import Telling
from penstock.engine.run.options import RunOptions
from penstock.engine.run.planning import topics_read
from penstock.engine.run.runtime import log_of
from penstock.engine.run.service import Show
from penstock.flow.graph import FlowGraph
from penstock.log.open import open_log
from penstock.log.port import Log

AGAIN = 0.1  # seconds between two looks whether the tables that flows read are known


@contextmanager
def captures_beside(
    names: Sequence[str], graphs: Sequence[FlowGraph], options: RunOptions, show: Show
) -> Iterator[threading.Event | None]:
    """Runs the captures as long as the `with` lasts; what it gives is set when one of them has failed, and the failure is raised
    at the end. If the run is bounded, the captures catch up first and have ended before it begins. Otherwise it begins once the
    columns of the tables that the flows read are known."""
    if not names:
        yield None
        return
    log, captures = open_log(url=log_of(graphs, options.log)), Captures()
    telling = Telling([captures.get(name) for name in dict.fromkeys(names)], show.say)
    host, stop = Host(names, log, telling.report), threading.Event()
    host.on_failure = stop.set
    bounded = options.mode != "run"
    try:
        host.start(catch_up=bounded)
        if bounded:
            host.join()
            _ended(host, telling, show, "caught up")
        else:
            _wait_for_tables(host, log, graphs)
        yield stop
    finally:
        host.stop()
        _ended(host, telling, show, "stopped")
    if host.failure:
        raise host.failure


def _wait_for_tables(host: Host, log: Log, graphs: Sequence[FlowGraph]) -> None:
    """A flow that takes its columns from a capture cannot be checked before the capture has told them."""
    wanted = set[str]().union(*map(topics_read, graphs))
    while host.failure is None:
        if all(_known(each, log, wanted) for each in host.hosted):
            return
        time.sleep(AGAIN)
    raise host.failure


def _known(hosted: Hosted, log: Log, wanted: set[str]) -> bool:
    names = hosted.definition.names
    topics = wanted.intersection(map(names.topic, hosted.definition.tables))
    if not topics:
        return True
    there = names.transactions in log.topics()
    return there and topics <= read_journal(log.topic(names.transactions)).state.tables.keys()


def _ended(host: Host, telling: Telling, show: Show, how: str) -> None:
    """Waits for the captures, and tells of each what it has done, once."""
    for each in host.hosted:
        if each.thread:
            each.thread.join()
            each.thread = None
            seconds = (each.ended or time.monotonic()) - each.began
            show.say(telling.closing(each.definition, each.run.progress, seconds, "failed" if each.failure else how))
