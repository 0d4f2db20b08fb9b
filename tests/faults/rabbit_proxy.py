"""Stands between a client and a broker: lets everything through, holds back what the broker says, or cuts the line."""

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self


class Proxy:
    """A port that leads to another. mute_at: once the client has sent these bytes, it hears nothing more on that connection."""

    def __init__(self, target: int) -> None:
        self._target, self._listener = target, socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.mute_at: bytes | None = None
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._guard = threading.Lock()

    def __enter__(self) -> Self:
        self._begin(self._accept)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join()

    def cut(self) -> None:
        """Ends all connections, in both directions; new ones are let through."""
        with self._guard:
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def _begin(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                with self._guard:
                    self._open |= {client, server}
                muted = threading.Event()
                self._begin(self._carry, client, server, muted, True)
                self._begin(self._carry, server, client, muted, False)

    def _carry(self, here: socket.socket, there: socket.socket, muted: threading.Event, outward: bool) -> None:
        seen = b""
        with suppress(OSError):
            while data := here.recv(65_536):
                if outward and self.mute_at is not None:
                    seen = (seen + data)[-100_000:]
                    if self.mute_at in seen:
                        muted.set()
                if outward or not muted.is_set():
                    there.sendall(data)
        with self._guard:
            for each in (here, there):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            self._open.discard(here)
        here.close()
