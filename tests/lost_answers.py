"""A way to a database on which the answer to a statement can be lost, and the connection with it."""

import socket
import threading
from contextlib import suppress


class LostAnswers:
    """Passes on what is said between clients and the server at this address."""

    def __init__(self, server: str) -> None:
        self._server, self._statement, self._executed = server, b"", threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def lose_the_next(self, statement: str = "COMMIT") -> None:
        """The answer to the next statement with these words."""
        self._statement = statement.encode()

    def __enter__(self) -> "LostAnswers":
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                host, _, port = self._server.partition(":")
                server = socket.create_connection((host, int(port)))
                threading.Thread(target=self._pass, args=(client, server, True), daemon=True).start()
                threading.Thread(target=self._pass, args=(server, client, False), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, asking: bool) -> None:
        with source, target, suppress(OSError):
            try:
                self._through(source, target, asking)
            finally:
                for end in (source, target):  # whoever waits at the other end is told
                    end.shutdown(socket.SHUT_RDWR)

    def _through(self, source: socket.socket, target: socket.socket, asking: bool) -> None:
        while data := source.recv(1 << 16):
            if asking and self._statement and self._statement in data:
                self._statement = b""
                self._executed.set()
            elif not asking and self._executed.is_set():
                return self._executed.clear()
            target.sendall(data)
        return None
