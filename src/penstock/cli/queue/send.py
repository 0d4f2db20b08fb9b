"""penstock queue send: messages from arguments, a file or standard input."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import BinaryIO

import click
import orjson

from penstock.cli.topic.lines import Batch, Batching, lines_of
from penstock.cli.topic.produce import INTERRUPTED, Interrupt, Rejects, progress
from penstock.core.time import duration
from penstock.errors import BadInput, PenstockError
from penstock.log.intake.codec import why_no_json
from penstock.queue.checks import check_message
from penstock.queue.options import MessageOptions, Time, message_of
from penstock.queue.port import Message
from penstock.queue.queue import Queue

BATCH = 1_000
LONGEST = 64 << 20  # bytes of a line


@dataclass(frozen=True)
class Order:
    """What goes with each message, and where from its own JSON it comes."""

    said: MessageOptions
    fields: Mapping[str, str] = field(default_factory=dict)  # id, key or route, and the field that says it
    raw: bool = False
    stop_on_error: bool = False
    wait: Time = "10 seconds"

    def message(self, line: bytes) -> Message:
        """BadInput if the line is no message."""
        body = line.removesuffix(b"\r")
        if self.raw:
            return check_message(message_of(body, self.said))
        try:
            read = orjson.loads(body)
        except orjson.JSONDecodeError as wrong:
            raise BadInput(why_no_json(body, wrong), hint="--format raw sends any line") from None
        return check_message(message_of(body, {**self.said, **self._from(read)}))

    def _from(self, read: object) -> MessageOptions:
        found: MessageOptions = {}
        for word, name in self.fields.items():
            value = read.get(name) if isinstance(read, dict) else None
            if value is None:
                raise BadInput(f"it has no field {name!r} for its {word}")
            found[word] = value if isinstance(value, str) else orjson.dumps(value).decode()  # type: ignore[literal-required]
        return found


@dataclass
class Outcome:
    sent: int = 0
    dropped: int = 0
    stopped: bool = False
    interrupted: bool = False
    rejects: Rejects = field(default_factory=Rejects)


def send_words(queue: Queue, words: Sequence[str], order: Order) -> int:
    """Sends the arguments and prints their ids."""
    try:
        messages = [order.message(word.encode()) for word in words]
    except BadInput as wrong:
        raise BadInput(f"a message cannot be sent: {wrong.what}", "nothing was sent", hint=wrong.hint) from None
    ids = queue.port.send(messages, duration(order.wait, "--wait").total_seconds())
    for id in ids:
        click.echo(id or "")
    _close(queue, Outcome(len([id for id in ids if id]), ids.count(None)))
    return 0


def send_lines(queue: Queue, file: BinaryIO | None, order: Order) -> int:
    """Sends every line; says what became of them and returns the exit code."""
    outcome, stream = Outcome(), file or sys.stdin.buffer
    try:
        with ExitStack() as stack:
            interrupt = stack.enter_context(Interrupt())
            advance = stack.enter_context(progress(stream))
            how = Batching(BATCH, LONGEST, lambda: interrupt.asked, keep_blank=order.raw)
            _send(queue, lines_of(stream, how), order, outcome, advance)
            outcome.interrupted = interrupt.asked
    except PenstockError:
        click.echo(f"failed; {outcome.sent:,} messages are known to be in the queue", err=True)
        raise
    _close(queue, outcome)
    none = outcome.rejects.count and not outcome.sent + outcome.dropped
    return 1 if outcome.stopped or none else INTERRUPTED if outcome.interrupted else 0


def _send(queue: Queue, batches: Iterator[Batch], order: Order, outcome: Outcome, advance: Callable[[Batch], None]) -> None:
    for batch in batches:
        messages = list(_messages(batch, order, outcome))
        ids = queue.port.send(messages, duration(order.wait, "--wait").total_seconds()) if messages else []
        outcome.sent += len([id for id in ids if id is not None])
        outcome.dropped += list(ids).count(None)
        advance(batch)
        if outcome.stopped:
            return


def _messages(batch: Batch, order: Order, outcome: Outcome) -> Iterator[Message]:
    for line, place in zip(batch.lines, batch.places, strict=True):
        try:
            yield order.message(line)
        except BadInput as wrong:
            outcome.rejects.add(place, wrong.what, line)
            if order.stop_on_error:
                outcome.stopped = True
                return


def _close(queue: Queue, outcome: Outcome) -> None:
    why = "stopped at the first line that was refused: " if outcome.stopped else "interrupted: " if outcome.interrupted else ""
    count = f"sent {outcome.sent:,} message{'' if outcome.sent == 1 else 's'} to {queue.name}"
    dropped = f" · {outcome.dropped:,} dropped, the queue is full" if outcome.dropped else ""
    click.echo(f"{why}{count} · {outcome.rejects.count:,} rejected{dropped}", err=True)
