"""Runs a bridge in the foreground: progress while it runs, a last line when it ends."""

import sys
import time
from dataclasses import dataclass, field
from typing import Any

import click

from penstock.cli.log import found_or_made
from penstock.cli.output import safe
from penstock.cli.topic.produce import INTERRUPTED, Interrupt
from penstock.errors import BadInput
from penstock.log.open import open_log
from penstock.log.port import Log, TopicSpec
from penstock.queue.bridge.bridge import Moved
from penstock.queue.bridge.to_queue import TopicToQueue
from penstock.queue.bridge.to_topic import QueueToTopic
from penstock.queue.on_log.queues import LogQueues
from penstock.queue.port import QueuesPort

Bridge = QueueToTopic | TopicToQueue


@dataclass(frozen=True)
class Order:
    """What was asked for."""

    source: str
    target: str
    follow: bool
    quiet: bool
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def ends(self) -> tuple[str, str, str]:
        """What it comes from, and the names of the queue and of the topic."""
        (kind, first), (other, second) = _end(self.source), _end(self.target)
        if kind == other:
            raise BadInput(f"a bridge leads from a {kind} to a {'topic' if kind == 'queue' else 'queue'}", hint=_HINT)
        return (kind, first, second) if kind == "queue" else (kind, second, first)


_HINT = "penstock bridge run queue:orders topic:orders, or the other way round"


def _end(text: str) -> tuple[str, str]:
    kind, _, name = text.partition(":")
    if kind not in ("queue", "topic") or not name:
        raise BadInput(f"{text!a} is neither queue:NAME nor topic:NAME", hint=_HINT)
    return kind, name


def run_bridge(queues: QueuesPort, order: Order) -> int:
    """Runs it until it is done or Ctrl-C is pressed; the exit code."""
    screen, began = Screen(order.quiet), time.monotonic()
    bridge = _bridge(queues, open_log(), order, screen)
    with Interrupt(bridge.stop) as interrupt:
        moved = bridge.run(order.follow)
    screen.end()
    click.echo(f"bridge {bridge.name}: {moved} in {time.monotonic() - began:.1f} s", err=True)
    return INTERRUPTED if interrupt.asked and not order.follow else 0


def _bridge(queues: QueuesPort, log: Log, order: Order, screen: "Screen") -> Bridge:
    kind, queue, topic = order.ends
    found = queues.queue(queue)
    if isinstance(queues, LogQueues) and found.spec.origin == topic:
        raise BadInput(f"queue {queue} is topic {topic}, read as a queue: a bridge between them would never end")
    given = {name: value for name, value in order.options.items() if value is not None}
    if kind == "queue":
        return QueueToTopic(found, found_or_made(log, TopicSpec(topic)), report=screen.report, **given)
    if given.keys() & {"remember", "span"}:
        raise BadInput(
            "--remember and --span are for bridges into a topic", hint="consumers of the queue tell doubles by their ids"
        )
    return TopicToQueue(log, topic, found, report=screen.report, **given)


class Screen:
    """What a bridge tells while it runs: one line that changes on a terminal; elsewhere what goes wrong."""

    def __init__(self, quiet: bool) -> None:
        self._quiet, self._live, self._began = quiet, sys.stderr.isatty() and not quiet, time.monotonic()
        self._trouble = ""

    def report(self, moved: Moved, trouble: str) -> None:
        if trouble and trouble != self._trouble and not self._quiet:
            self.end()
            click.echo(f"{safe(trouble)}; trying again", err=True)
        self._trouble = trouble or self._trouble
        if self._live:
            rate = moved.moved / max(time.monotonic() - self._began, 0.001)
            click.echo(f"\r\x1b[K{moved} · {rate:,.0f}/s", err=True, nl=False)

    def end(self) -> None:
        if self._live:
            click.echo("\r\x1b[K", err=True, nl=False)
