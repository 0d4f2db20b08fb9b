"""Lines from a file, a pipe or a TCP socket, in batches that neither grow without bound nor wait for a slow writer."""

import codecs
import os
import select
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from penstock.errors import BadInput

READ = 1 << 18
BATCH_BYTES = 8 << 20
TICK = 0.1  # seconds that a line waits for company at most


@dataclass
class Batch:
    """Lines without their line ends, where each came from, and how many bytes were read for them."""

    lines: list[bytes] = field(default_factory=list)
    places: list[int | str] = field(default_factory=list)
    size: int = 0
    since: float = 0.0

    def add(self, lines: list[bytes], places: list[int | str]) -> None:
        if not self.lines:
            self.since = time.monotonic()
        self.lines += lines
        self.places += places

    def cut(self, rows: int) -> "Batch":
        """The first lines as a batch of their own; the others stay."""
        first = Batch(self.lines[:rows], self.places[:rows], self.size, self.since)
        self.lines, self.places, self.size = self.lines[rows:], self.places[rows:], 0
        return first


class Splitter:
    """Cuts what is read into lines. Of a line beyond the limit only limit + 1 bytes are kept, so that memory stays flat."""

    def __init__(self, limit: int, source: str = "", keep_blank: bool = False) -> None:
        self._keep, self._source, self._blank = limit + 1, source, keep_blank
        self._rest, self._number = b"", 0

    def feed(self, data: bytes) -> tuple[list[bytes], list[int | str]]:
        """The lines that are whole now, and the place of each."""
        *lines, rest = data.split(b"\n")
        if not lines:
            self._rest += rest[: max(0, self._keep - len(self._rest))]
            return [], []
        lines[0] = self._rest + lines[0]
        self._rest = rest[: self._keep]
        return self._numbered(lines)

    def end(self) -> tuple[list[bytes], list[int | str]]:
        """What stands after the last line end."""
        lines, self._rest = [self._rest] if self._rest else [], b""
        return self._numbered(lines)

    def _numbered(self, lines: list[bytes]) -> tuple[list[bytes], list[int | str]]:
        first, self._number = self._number + 1, self._number + len(lines)
        numbers = range(first, self._number + 1)
        places: list[int | str] = [f"{self._source} line {n}" for n in numbers] if self._source else list(numbers)
        if self._blank or not (b"" in lines or b"\r" in lines):
            return lines, places
        kept = [i for i, line in enumerate(lines) if line not in (b"", b"\r")]
        return [lines[i] for i in kept], [places[i] for i in kept]


@dataclass(frozen=True)
class Batching:
    """When a batch is full, when to stop, and the longest line."""

    rows: int
    limit: int
    stop: Callable[[], bool]
    keep_blank: bool = False  # an empty line is a record, too

    def full(self, batch: Batch) -> bool:
        return len(batch.lines) >= self.rows or batch.size >= BATCH_BYTES

    def due(self, batch: Batch) -> bool:
        return bool(batch.lines) and (self.full(batch) or time.monotonic() - batch.since >= TICK)


def lines_of(stream: BinaryIO, how: Batching) -> Iterator[Batch]:
    """The lines of a file, a pipe or a terminal."""
    splitter, batch = Splitter(how.limit, keep_blank=how.keep_blank), Batch()
    read, ready = _reader(stream)
    first = not how.keep_blank
    while not how.stop():
        if ready(TICK):
            data = _unmarked(read()) if first else read()
            first = False
            if not data:
                batch.add(*splitter.end())
                break
            batch.size += len(data)
            batch.add(*splitter.feed(data))
        while how.due(batch):
            yield batch.cut(how.rows)
    while batch.lines or batch.size:
        yield batch.cut(how.rows)


def _unmarked(data: bytes) -> bytes:
    """The begin of a text without the mark that some editors and Windows put there."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        hint = "convert it: iconv -f UTF-16 -t UTF-8 FILE | penstock topic produce NAME"
        raise BadInput("the lines are UTF-16; they must be UTF-8", hint=hint)
    return data.removeprefix(codecs.BOM_UTF8)


def _reader(stream: BinaryIO) -> tuple[Callable[[], bytes], Callable[[float], bool]]:
    """How to read some bytes, and how to wait for them without being held beyond a time."""
    try:
        number = stream.fileno()
    except OSError:  # a stream that lives in memory never waits
        return lambda: stream.read(READ), lambda seconds: True
    poll = select.poll()  # not select.select, which knows the first 1,024 descriptors of a process only
    poll.register(number, select.POLLIN)
    return lambda: os.read(number, READ), lambda seconds: bool(poll.poll(seconds * 1000))


def lines_from_socket(server: socket.socket, how: Batching) -> Iterator[Batch]:
    """The lines of everybody who connects, several at once; until told to stop."""
    batch = Batch()
    with selectors.DefaultSelector() as selector:
        server.setblocking(False)
        selector.register(server, selectors.EVENT_READ, None)
        try:
            while not how.stop():
                for key, _ in selector.select(TICK):
                    _serve(selector, key, how, batch)
                while how.due(batch):
                    yield batch.cut(how.rows)
        finally:
            for key in list(selector.get_map().values()):
                if key.data is not None:
                    key.fileobj.close()  # type: ignore[union-attr]
    while batch.lines:
        yield batch.cut(how.rows)


def _serve(selector: selectors.BaseSelector, key: selectors.SelectorKey, how: Batching, batch: Batch) -> None:
    connection = key.fileobj
    assert isinstance(connection, socket.socket)
    if key.data is None:
        _accept(selector, connection, how)
        return
    try:
        data = connection.recv(READ)
    except BlockingIOError:
        return
    except OSError:  # reset by the other side: what came before is kept
        data = b""
    batch.size += len(data)
    batch.add(*(key.data.feed(data) if data else key.data.end()))
    if not data:
        selector.unregister(connection)
        connection.close()


def _accept(selector: selectors.BaseSelector, server: socket.socket, how: Batching) -> None:
    try:
        connection, peer = server.accept()
    except OSError:  # it left before it was let in
        return
    connection.setblocking(False)
    splitter = Splitter(how.limit, f"{peer[0]}:{peer[1]}", how.keep_blank)
    selector.register(connection, selectors.EVENT_READ, splitter)
