"""Runs flows in this process: start, signals, progress, the end."""

import sys
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Protocol

from penstock.core.time import duration
from penstock.engine.flows.ending import drained, in_words
from penstock.engine.run import loop
from penstock.engine.run.driver import Driver
from penstock.engine.run.epoch.decision import Decisions
from penstock.engine.run.epoch.report import Report
from penstock.engine.run.lock import held_lock
from penstock.engine.run.options import RunOptions
from penstock.engine.run.progress import Tally
from penstock.engine.run.runtime import Runtime, log_of
from penstock.engine.run.signals import ended_by_signals, stopped_by_signals
from penstock.engine.run.tidying import tidied
from penstock.engine.run.waiting import LIMIT, WaitMessages
from penstock.engine.spark.cluster import on_this_machine
from penstock.errors import BadFlow, BadInput, NotFound
from penstock.flow.graph import FlowGraph
from penstock.log.file.log import FileLog
from penstock.log.port import Log
from penstock.plan import Plan
from penstock.storage.home import find_home, open_to_others
from penstock.storage.local import LocalStorage


class Show(Protocol):
    """Who tells people."""

    def say(self, text: str) -> None: ...

    def progress(self, tally: Tally, report: Report) -> None: ...

    def wait(self, text: str) -> None: ...

    def close(self, tally: Tally) -> None: ...


class PlainShow:
    """Lines on standard error; progress only when a run takes long."""

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def progress(self, tally: Tally, report: Report) -> None:
        if report.behind or tally.epochs == 1:
            self.say(tally.progress(report))

    def wait(self, text: str) -> None:
        self.say(text)

    def close(self, tally: Tally) -> None:
        self.say(f"{tally.driver.plan.flow}: {tally.closing()}")


def serve(
    graphs: Sequence[FlowGraph], options: RunOptions, show: Show | None = None, stop: threading.Event | None = None
) -> list[Tally]:
    """Runs the flows as ordered and returns what each did. Bounded runs go one after the other, in the order given. stop: ends the
    run as a signal does."""
    show, stop = show or PlainShow(), stop or threading.Event()
    every = duration(options.every, "every").total_seconds() if options.every is not None else 0.0
    home = Path(options.home) if options.home else find_home()
    runtime = Runtime(home, options.master, options.conf, show.say, log_of(graphs, options.log))
    if options.mode not in ("run", "catch_up", "drain"):
        raise BadInput(f"a flow cannot {options.mode!r}", hint="run, catch_up or drain")
    show.say(f"home {runtime.home}" + ("" if isinstance(runtime.log, FileLog) else f" · log {runtime.log}"))
    if warning := open_to_others(runtime.home):
        show.say(warning)
    with ended_by_signals():
        plans = [runtime.plan(graph, graphs) for graph in graphs]
        _worth_starting(runtime, plans, options.mode)
        drivers = [runtime.driver(plan, options.buckets, accept_gap=options.accept_gap) for plan in plans]
        started: list[Driver] = []
        try:
            for driver in drivers:
                loop.start(driver, stop, WaitMessages(show.say, show.wait))
                started.append(driver)
                if drained(driver.decisions, driver.last):
                    show.say(in_words(driver.plan.flow))
            with (
                stopped_by_signals(stop, show.say, "finishing the epoch, then stopping"),
                tidied(runtime.log, show.say) if options.mode == "run" else nullcontext(),
            ):
                return run_started(drivers, options, every, stop, show)
        finally:
            for driver in started:
                driver.release()


def run_started(drivers: Sequence[Driver], options: RunOptions, every: float, stop: threading.Event, show: Show) -> list[Tally]:
    """Runs drivers that have started, each in its own thread, until they have come to an end."""
    tallies = [Tally(driver) for driver in drivers]

    def one(tally: Tally) -> None:
        def seen(report: Report) -> None:
            tally.add(report)
            show.progress(tally, report)

        messages = WaitMessages(show.say, show.wait)
        if options.mode == "run":
            loop.run(tally.driver, stop, seen, every, options.max_rows, messages)
        elif options.mode == "catch_up":
            loop.catch_up(tally.driver, stop, seen, options.max_rows, messages)
        else:
            loop.drain(tally.driver, stop, seen, options.max_rows, messages)
        _deliver_rest(tally.driver, stop, show)
        show.close(tally)

    if options.mode == "run":
        failures = loop.side_by_side([lambda t=t: one(t) for t in tallies], stop)  # type: ignore[misc]
        if failures:
            raise failures[0]
    else:
        for tally in tallies:
            one(tally)
    return tallies


def _deliver_rest(driver: Driver, stop: threading.Event, show: Show) -> None:
    """Everything decided is delivered; when the run was interrupted, only as far as the sinks are there."""
    if not stop.is_set():
        driver.deliverer.caught_up(LIMIT)
    for line in driver.deliverer.finish():
        show.say(f"{driver.plan.flow}: {line}")


def _worth_starting(runtime: Runtime, plans: Sequence[Plan], mode: str) -> None:
    """What would stop a run, or let it wait, is said before Spark is started for it."""
    for plan, topic in _missing(runtime.log, plans):
        if mode == "run":
            runtime.say(f"flow {plan.flow} waits for topic {topic}, which does not exist yet")
            continue
        raise NotFound(
            f"flow {plan.flow} reads topic {topic!r}, which does not exist",
            f"topics here: {', '.join(runtime.log.topics()) or 'none'}",
            hint=f"write to it first (penstock topic produce {topic}), or run without --catch-up and it is waited for",
        )
    _within_reach(runtime, plans)
    for plan in plans:
        decisions = Decisions(LocalStorage(str(runtime.home / "flows" / plan.flow)), plan.flow)
        held_lock(decisions).__exit__(None, None, None)
        decisions.check_whole()


def _within_reach(runtime: Runtime, plans: Sequence[Plan]) -> None:
    """Executors on other machines cannot read what is in the memory of this one."""
    if on_this_machine(runtime.master or runtime.conf.get("spark.master") or "local"):
        return
    there = set(runtime.log.topics())
    for step, source in ((plan.step(name), source) for plan in plans for name, source in plan.sources.items()):
        topic = "" if source.static else source.topic
        if topic in there and runtime.log.topic(topic).spec.durability == "memory":
            raise BadFlow(
                f"topic {topic!r} is kept in the memory of this machine, and {runtime.master} reads it on others",
                f'step "{step.name}" ({step.origin})',
                hint="make it with --durability os or fsync; or put the log on Kafka (--log)",
            )


def _missing(log: Log, plans: Sequence[Plan]) -> list[tuple[Plan, str]]:
    """Topics that flows read, and that are neither there nor written by one of them."""
    written = {out.topic for plan in plans for out in plan.outputs if out.topic}
    there = {*log.topics(), *written}
    sources = [(plan, source) for plan in plans for source in plan.sources.values()]
    return [(plan, source.topic) for plan, source in sources if not source.static and source.topic not in there]
