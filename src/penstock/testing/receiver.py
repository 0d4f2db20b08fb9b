"""A receiver of webhooks, for tests and for trying things out: it can be away, slow or wrong, and honours idempotency keys.

python -m penstock.testing.receiver --port 8080      prints each message once, and says which came again
"""

import argparse
import json
import ssl
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

KEY = "Idempotency-Key"


@dataclass(frozen=True)
class Request:
    """What came in."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def key(self) -> str:
        return self.headers.get(KEY, "")

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """What is answered. taken: whether the receiver did what it was asked for, whatever it says of it."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    taken: bool | None = None  # None: if the status says so
    silent: bool = False  # the connection is closed without a word: the sender does not know

    @property
    def takes(self) -> bool:
        return 200 <= self.status < 300 if self.taken is None else self.taken


OK, LOST = Reply(), Reply(silent=True)  # LOST: it is taken, and the answer never arrives


class Receiver:
    """Listens on 127.0.0.1 inside a `with`. `requests` are all that came, `messages` those that were taken, once for each key.
    tls: a file with the certificate and the key that it answers with."""

    def __init__(
        self, port: int = 0, told: Callable[[Request, bool], None] = lambda request, new: None, tls: str | None = None
    ) -> None:
        self.port, self._told, self._tls = port, told, tls
        self.requests: list[Request] = []
        self.messages: dict[str, Request] = {}
        self._next: deque[Reply] = deque()
        self._always = OK
        self._guard = threading.Lock()
        self._going = threading.Event()  # cleared: requests wait before they are answered
        self._going.set()
        self._server: _Server | None = None

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}/"

    def answer(self, *replies: Reply, always: Reply | None = None) -> None:
        """The next requests get these answers, one each; all others `always`, which is OK at first."""
        with self._guard:
            self._next.extend(replies)
            self._always = always or self._always

    def hold(self) -> None:
        """From now on requests are taken, and answered when `go` is called: the sender may have given up by then."""
        self._going.clear()

    def go(self) -> None:
        self._going.set()

    def up(self) -> "Receiver":
        self._server = _Server(("127.0.0.1", self.port), _Handler)
        if self._tls:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(self._tls)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._server.receiver, self.port = self, self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True, name="receiver").start()
        return self

    def down(self) -> None:
        """Connections are refused, and those that are open closed, until it is `up` again, under the same port."""
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server.cut()
            self._server = None

    def __enter__(self) -> "Receiver":
        return self.up()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.go()
        self.down()

    def take(self, request: Request) -> Reply:
        """In the thread of a connection."""
        with self._guard:
            reply = self._next.popleft() if self._next else self._always
            self.requests.append(request)
            if reply.takes:
                new = request.key not in self.messages
                self.messages.setdefault(request.key, request)
                self._told(request, new)
        self._going.wait()
        return reply


class _Server(ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 128
    receiver: Receiver

    def __init__(self, *given: Any) -> None:
        self._open: set[Any] = set()
        super().__init__(*given)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def cut(self) -> None:
        for request in list(self._open):
            self.shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A sender that went away is no error of the receiver's."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version, disable_nagle_algorithm, wbufsize = "HTTP/1.1", True, -1
    server: _Server

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:  # the sender was killed in the middle
            self.close_connection = True
            return
        reply = self.server.receiver.take(Request(self.path, dict(self.headers), body))
        if reply.silent:
            self.close_connection = True
            return
        self.send_response_only(reply.status)
        for name, value in (*reply.headers, ("Content-Length", str(len(reply.body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m penstock.testing.receiver", description=__doc__)
    words.add_argument("--port", type=int, default=8080)

    def told(request: Request, new: bool) -> None:
        print(request.body.decode(errors="replace") if new else f"again, and ignored: {request.key}", flush=True)

    with Receiver(words.parse_args().port, told) as receiver:
        print(f"listening on {receiver.url}", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
