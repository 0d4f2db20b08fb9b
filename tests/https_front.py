"""TLS and basic authentication before a server that has neither: what a security plugin, or a proxy in front of it, would do."""

import base64
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import urllib3


class _Front(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    target, wanted = "", ""
    seen: list[str]

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.seen.append(self.headers.get("Authorization", ""))
        if self.seen[-1] != self.wanted:
            self._answer(401, b"Unauthorized", "text/plain")  # as OpenSearch's own plugin says it: no JSON
            return
        headers = {"Content-Type": self.headers.get("Content-Type", "application/json")}
        with urllib3.PoolManager() as http:
            found = http.request(self.command, self.target + self.path, body=body or None, headers=headers)
        self._answer(found.status, found.data, "application/json")

    do_GET = do_PUT = do_POST = do_DELETE = _pass

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class _Other(_Front):
    status, said = 200, b""

    def _pass(self) -> None:
        self._answer(self.status, self.said, "text/html")

    do_GET = do_PUT = do_POST = do_DELETE = _pass


@contextmanager
def another_server(status: int, said: bytes) -> Iterator[str]:
    """The URL of a server that always says the same."""
    with _served(type("Other", (_Other,), {"status": status, "said": said})) as server:
        yield f"http://127.0.0.1:{server.server_address[1]}"


@contextmanager
def https_before(target: str, user: str, password: str, certificate: Path) -> Iterator[tuple[int, list[str]]]:
    """The port of the front for a URL, and what it was shown in place of a name and a password. certificate: with its key."""
    seen: list[str] = []
    wanted = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with _served(type("Front", (_Front,), {"target": target, "wanted": wanted, "seen": seen}), context) as server:
        yield server.server_address[1], seen


@contextmanager
def _served(handler: type[_Front], context: ssl.SSLContext | None = None) -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
