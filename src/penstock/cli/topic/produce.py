"""penstock topic produce: lines from standard input, a file or a socket into a topic; every line is stored or told about."""

import ipaddress
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO

import click

from penstock.cli.output import safe
from penstock.cli.topic.lines import Batch, Batching, lines_from_socket, lines_of
from penstock.errors import BadInput, PenstockError
from penstock.log.port import Topic
from penstock.log.producer import Producer, as_micros

SHOWN = 20  # lines told of, before they are only counted
FAILED, INTERRUPTED = 1, 130


@dataclass
class Rejects:
    """Lines that were refused: the first ones are told, all are counted and, if asked for, written to a file."""

    file: BinaryIO | None = None
    count: int = 0

    def add(self, place: int | str, reason: str, line: bytes) -> None:
        self.count += 1
        if self.count <= SHOWN:
            click.echo(safe(f"{place if isinstance(place, str) else f'line {place}'}: {reason}"), err=True)
        elif self.count == SHOWN + 1:
            more = "they are in the file" if self.file else "--rejects FILE keeps them all"
            click.echo(f"more lines were refused; from here on they are counted only ({more})", err=True)
        if self.file:
            import orjson

            text = line.decode("utf-8", "backslashreplace")
            self.file.write(orjson.dumps({"line": place, "reason": reason, "value": text}) + b"\n")


@dataclass(frozen=True)
class Order:
    """What to do with the lines."""

    partition: int | None = None
    stop_on_error: bool = False
    most: int | None = None
    raw: bool = False
    batch_rows: int = 10_000
    mark: str | None = None
    deletes: bool = False  # lines are keys


@dataclass
class Outcome:
    rows: int = 0
    stopped: bool = False  # by a line that was refused
    interrupted: bool = False
    rejects: Rejects = field(default_factory=Rejects)


class Interrupt:
    """Turns the first Ctrl-C (or SIGTERM) into a wish to stop, so that what was accepted is still written; a second one ends it."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        """then: called in the handler of the first one."""
        self.asked, self._then = False, then

    def __enter__(self) -> "Interrupt":
        self._before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, *_: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        self._then()


def produce_batches(
    producer: Producer, batches: Iterator[Batch], order: Order, outcome: Outcome, advance: Callable[[Batch], None]
) -> None:
    """Writes the batches until they end, a line is refused and that stops it, or enough rows are in the log."""
    for batch in batches:
        lines, places = batch.lines, batch.places
        while lines and not outcome.stopped and order.most != outcome.rows:
            room = len(lines) if order.most is None else order.most - outcome.rows
            sent = producer.send_lines(
                lines[:room],
                partition=order.partition,
                objects=not order.raw,
                before_refused=order.stop_on_error,
                deletes=order.deletes,
            )
            outcome.rows += sent.rows
            outcome.stopped = order.stop_on_error and bool(sent.rejected)
            for rejected in sent.rejected[:1] if outcome.stopped else sent.rejected:
                outcome.rejects.add(places[rejected.index], rejected.reason, lines[rejected.index])
            lines, places = lines[room:], places[room:]
        advance(batch)
        if outcome.stopped or order.most == outcome.rows:
            return


def listening_socket(address: str, anywhere: bool) -> socket.socket:
    """A socket that listens at HOST:PORT; loopback only, unless anywhere is allowed."""
    host, colon, port = address.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not colon or not port.isdigit() or int(port) > 65535:
        raise BadInput(f"cannot listen at {address!r}", hint="write HOST:PORT, as in 127.0.0.1:9000 (port 0: any free one)")
    try:
        family, kind, protocol, _, found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
    except OSError as wrong:
        raise BadInput(f"cannot listen at {address!r}: {wrong.strerror}") from wrong
    if not anywhere and not ipaddress.ip_address(str(found[0])).is_loopback:
        raise BadInput(
            f"{host} can be reached from other machines, and whoever connects may write to the topic",
            hint="listen at 127.0.0.1, or add --listen-anywhere if that is what you want",
        )
    server = socket.socket(family, kind, protocol)
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(found)
        server.listen()
    except OSError as wrong:
        server.close()
        raise BadInput(f"cannot listen at {address!r}: {wrong.strerror}", hint="choose a free port; 0 takes any") from wrong
    return server


@contextmanager
def progress(file: BinaryIO | None) -> Iterator[Callable[[Batch], None]]:
    """A bar by bytes for a file, rows for everything else; on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda batch: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = [
        TextColumn("{task.fields[rows]:,} rows"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    ]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=_size(file), rows=0)

        def advance(batch: Batch) -> None:
            rows = bar.tasks[0].fields["rows"] + len(batch.lines)
            bar.update(task, advance=batch.size, rows=rows)

        yield advance


def _size(file: BinaryIO | None) -> int | None:
    if file is None or not file.seekable():
        return None
    at = file.tell()
    size = file.seek(0, 2)
    file.seek(at)
    return size


@dataclass(frozen=True)
class Input:
    """Where the lines come from: a stream, or a socket that listens."""

    stream: BinaryIO | None = None
    server: socket.socket | None = None

    def batches(self, how: Batching) -> Iterator[Batch]:
        if self.server:
            return lines_from_socket(self.server, how)
        assert self.stream
        return lines_of(self.stream, how)


def produce_all(
    topic: Topic, order: Order, file: BinaryIO | None, listen: tuple[str | None, bool], rejects: BinaryIO | None
) -> int:
    """Everything from the source into the topic; says what became of it and returns the exit code."""
    address, anywhere = listen
    if address and file:
        raise BadInput("lines come from a file or from --listen, not from both")
    count = topic.spec.partitions
    if order.partition is not None and order.partition >= count:
        raise BadInput(f"topic {topic.spec.name} has no partition {order.partition}", f"it has 0 to {count - 1}")
    mark = None if order.mark is None else as_micros(order.mark)
    with ExitStack() as stack:
        source = Input(file or sys.stdin.buffer)
        if address:
            server = stack.enter_context(listening_socket(address, anywhere))
            click.echo("listening on {}:{}".format(*server.getsockname()[:2]), err=True)
            source = Input(server=server)
        outcome = _produce(topic, source, order, Rejects(rejects), mark)
    click.echo(_closing(topic, outcome), err=True)
    if outcome.stopped or (outcome.rejects.count and not outcome.rows):
        return FAILED
    return INTERRUPTED if outcome.interrupted and not address else 0


def _produce(topic: Topic, source: Input, order: Order, rejects: Rejects, mark: int | None) -> Outcome:
    outcome, producer = Outcome(rejects=rejects), Producer(topic, batch_rows=order.batch_rows)
    try:
        with ExitStack() as stack:
            interrupt = stack.enter_context(Interrupt())
            advance = stack.enter_context(progress(source.stream))
            stack.enter_context(producer)
            how = Batching(order.batch_rows, topic.spec.max_record, lambda: interrupt.asked, keep_blank=order.raw)
            produce_batches(producer, source.batches(how), order, outcome, advance)
            outcome.interrupted = interrupt.asked
            if mark is not None and not outcome.stopped and not outcome.interrupted:
                producer.mark(mark)
    except PenstockError:
        click.echo(f"failed; {producer.acknowledged:,} rows are known to be in the log", err=True)
        raise
    return outcome


def _closing(topic: Topic, outcome: Outcome) -> str:
    partitions = f"{topic.spec.partitions} partition{'' if topic.spec.partitions == 1 else 's'}"
    rows = f"produced {outcome.rows:,} row{'' if outcome.rows == 1 else 's'} to {topic.spec.name} ({partitions})"
    why = "stopped at the first line that was refused: " if outcome.stopped else "interrupted: " if outcome.interrupted else ""
    told = f"{why}{rows} · {outcome.rejects.count:,} rejected"
    if outcome.rows or not outcome.rejects.count:
        return told
    return f"{told}\nno line fits the topic: penstock topic describe {topic.spec.name}"
