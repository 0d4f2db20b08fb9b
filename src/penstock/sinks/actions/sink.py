"""Actions as a sink: an epoch's rows go to the outbox, once; a sender acts on them behind the flow's back."""

from collections.abc import Callable
from concurrent.futures import Executor
from typing import Protocol

from penstock.errors import SinkError
from penstock.log.port import Topic, TopicSpec
from penstock.sinks.actions.outbox.intents import Intents
from penstock.sinks.actions.outbox.letters import DeadLetters
from penstock.sinks.actions.outbox.outcomes import Outcomes
from penstock.sinks.actions.outbox.pace import Times
from penstock.sinks.actions.outbox.running import Running
from penstock.sinks.actions.outbox.sender import Outbox, Sender
from penstock.sinks.actions.outbox.sending import Sending
from penstock.sinks.actions.port import Action
from penstock.sinks.port import Delivery, SinkContext
from penstock.sinks.topic import TopicSink


class Runs(Protocol):
    """Makes the steps of a sender: `Running`, or a test."""

    def told(self) -> None: ...

    def check(self) -> None: ...

    def stop(self) -> None: ...


Start = Callable[[Callable[[Executor], Sender], Sending, str], Runs]


OUTBOX = ".outbox"


def outbox_topic(flow: str, sink: str) -> str:
    """shop.alerts.outbox"""
    return f"{flow}.{sink}{OUTBOX}"


def is_outbox(topic: TopicSpec, flow: str) -> bool:
    """Whether a topic holds intents of a flow: a row that is appended there once more is sent once more, with the same key."""
    return topic.writer == flow and topic.name.endswith(OUTBOX)


class ActionSink:
    """Takes an epoch as fast as a topic does; a receiver that is away holds nobody back. After a crash, intents without an outcome
    are sent again with the same key (G38). start: who makes the steps of the sender."""

    def __init__(
        self, context: SinkContext, action: Action, sending: Sending, start: Start = Running, times: Times | None = None
    ) -> None:
        self._context, self._action, self._sending = context, action, sending
        self._start, self._times = start, times
        self._name = outbox_topic(context.spec.flow, context.spec.name)
        self._outbox = TopicSink(context.spec, context.log, self._name, 1, (), context.storage, context.fail)
        self._running: Runs | None = None

    def open(self, incarnation: str, generation: int) -> int:
        self.close()
        epoch = self._outbox.open(incarnation, generation)
        self._action.open()
        outbox = self._opened(incarnation, generation)
        self._running = self._start(lambda pool: self._sender(outbox, pool), self._sending, self._context.spec.name)
        return epoch

    def _opened(self, incarnation: str, generation: int) -> Outbox:
        """Senders of earlier generations are fenced off from here on."""
        log, spec = self._context.log, self._context.spec
        topic = log.topic(self._name)
        outcomes = Outcomes(log, f"{spec.flow}.{spec.name}.outcomes", spec.flow, topic)
        outcomes.open(incarnation, generation)
        intents = Intents(topic, spec, self._sending.in_order_by, self._start_of(topic, outcomes.known.settled))
        letters = DeadLetters(log, spec, self._name, self._action.called)
        letters.open(incarnation, generation)
        return Outbox(intents, outcomes, letters)

    def _start_of(self, topic: Topic, settled: int) -> int:
        """The first intent without a final outcome; SinkError if it was removed unsent."""
        first = topic.ends()[0].first
        if settled < first and topic.headers:  # a broker gives offsets to its own notes, too
            raise SinkError(
                f"topic {self._name!r} has lost actions that were not sent: offsets {settled} to {first - 1}",
                hint="retention removed them: keep the topic longer; to go on without them, give the sink another name",
            )
        return max(settled, first)

    def _sender(self, outbox: Outbox, pool: Executor) -> Sender:
        sender = Sender(self._action, outbox, self._sending, pool, self._times, self._context.fail)
        sender.recover()
        return sender

    def deliver(self, delivery: Delivery) -> None:
        if self._running is None:
            raise SinkError(f"{self._action.called} is not open", hint="call open() first")
        self._running.check()
        self._outbox.deliver(delivery)
        self._running.told()

    def close(self) -> None:
        if self._running is not None:
            self._running.stop()
            self._running = None
        self._action.close()
        self._outbox.close()
