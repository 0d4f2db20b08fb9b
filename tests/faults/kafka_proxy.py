"""Stands between Kafka's clients and a broker, and knows the answers of fetches: cuts, holds back or ends them at any byte.

The broker must advertise the proxy's address, and be told another one for itself."""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Literal, NamedTuple, Self

FETCH = 1  # the number of the request


class Fault(NamedTuple):
    """What becomes of an answer to a fetch. at: how much of it goes through, from 0 to 1."""

    kind: Literal["cut", "hold", "close"]
    at: float = 0.0
    seconds: float = 0.0


class KafkaProxy:
    """A port that leads to another. faults: asked before each answer to a fetch that brings records; None: it goes through."""

    def __init__(self, target: Callable[[], int], fault: Callable[[], Fault | None]) -> None:
        self._target, self._fault = target, fault
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        self.done = 0  # faults so far

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._guard:
            for each in self._open:
                _end(each)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._target()))
                except OSError:  # the broker is away
                    client.close()
                    continue
                with self._guard:
                    self._open |= {client, server}
                fetches: set[bytes] = set()  # numbers of the requests whose answers are awaited
                threading.Thread(target=self._ask, args=(client, server, fetches), daemon=True).start()
                threading.Thread(target=self._answer, args=(server, client, fetches), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket, fetches: set[bytes]) -> None:
        with suppress(OSError):
            while message := _message(client):
                if int.from_bytes(message[4:6]) == FETCH:
                    fetches.add(message[8:12])
                server.sendall(message)
        self._over(client, server)

    def _answer(self, server: socket.socket, client: socket.socket, fetches: set[bytes]) -> None:
        with suppress(OSError):
            while message := _message(server):
                fault = self._fault() if message[4:8] in fetches and len(message) > 200 else None
                fetches.discard(message[4:8])
                if fault is None:
                    client.sendall(message)
                    continue
                self.done += 1
                client.sendall(message[: int(len(message) * fault.at)])
                if fault.kind != "hold":
                    break
                time.sleep(fault.seconds)
                client.sendall(message[int(len(message) * fault.at) :])
        self._over(server, client)

    def _over(self, *ends: socket.socket) -> None:
        for each in ends:
            _end(each)
        with self._guard:
            self._open.difference_update(ends)


def _message(here: socket.socket) -> bytes:
    """A whole request or answer, its length before it; nothing at the end."""
    head = _exactly(here, 4)
    return head + _exactly(here, int.from_bytes(head)) if head else b""


def _exactly(here: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = here.recv(size - len(data))
        if not more:
            return b""
        data += more
    return data


def _end(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    with suppress(OSError):
        each.close()
