"""TLS before a server that does not speak it."""

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.testing.servers.fixtures import missing


def certificate_in(place: Path) -> Path:
    """A certificate for localhost that is its own authority, and beside it its key, key.pem."""
    if not shutil.which("openssl"):
        missing("there is no openssl here to make a certificate with")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(place / "key.pem"), "-out", str(place / "cert.pem")]
    subprocess.run([*made, *names], check=True, capture_output=True)
    return place / "cert.pem"


@contextmanager
def tls_before(target: int, certificate: Path) -> Iterator[int]:
    """The port where TLS is spoken; what is said goes on to the server at the port `target`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=_accept, args=(listener, context, target), daemon=True)
    thread.start()
    yield int(listener.getsockname()[1])
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def _accept(listener: socket.socket, context: ssl.SSLContext, target: int) -> None:
    with suppress(OSError):
        while True:
            raw, _ = listener.accept()
            threading.Thread(target=_serve, args=(raw, context, target), daemon=True).start()


def _serve(raw: socket.socket, context: ssl.SSLContext, target: int) -> None:
    """One thread for both directions: a TLS socket is not for two."""
    with (
        suppress(OSError),
        context.wrap_socket(raw, server_side=True) as near,
        socket.create_connection(("127.0.0.1", target)) as far,
    ):
        for each in (near, far):
            each.settimeout(0.005)
        while True:
            for here, there in ((near, far), (far, near)):
                with suppress(TimeoutError):
                    data = here.recv(65_536)
                    if not data:
                        return
                    there.sendall(data)
