"""A RabbitMQ behind TLS: who it is has to be proven."""

import secrets
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.errors import LogError
from penstock.queue.port import Consumer, Message, QueueSpec
from penstock.queue.rabbitmq.queues import RabbitQueues
from penstock.testing.servers.fixtures import missing
from penstock.testing.servers.rabbitmq_server import RabbitServer


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for localhost that is its own authority, and beside it its key."""
    if not shutil.which("openssl"):
        missing("there is no openssl here to make a certificate with")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")]
    subprocess.run([*made, *names], check=True, capture_output=True)
    return tmp_path / "cert.pem"


@pytest.fixture
def port(certificate: Path, rabbitmq_server: RabbitServer) -> Iterator[int]:
    """Where TLS is spoken; what is said goes on to the server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    listener = socket.create_server(("127.0.0.1", 0))
    threads = [threading.Thread(target=_accept, args=(listener, context, rabbitmq_server.port), daemon=True)]
    threads[0].start()
    yield int(listener.getsockname()[1])
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    threads[0].join()


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


def test_messages_go_over_tls_to_a_broker_that_is_known(port: int, certificate: Path) -> None:
    with RabbitQueues(f"amqps://localhost:{port}?ca={certificate}&prefix=t{secrets.token_hex(4)}.") as queues:
        queue = queues.create(QueueSpec("emails"))
        assert queue.send([Message(b"hello", "a")]) == ["a"]
        assert [delivery.message.body for delivery in queue.receive(Consumer("anna"))] == [b"hello"]
        for name in queues.names():
            queues.delete(name)


@pytest.mark.parametrize("where", ["localhost:{port}", "127.0.0.1:{port}?ca={ca}"])
def test_a_broker_that_cannot_prove_who_it_is_is_not_talked_to(port: int, certificate: Path, where: str) -> None:
    """An authority that nobody knows; a name that is not in the certificate."""
    url = f"amqps://{where.format(port=port, ca=certificate)}"
    with pytest.raises(LogError, match="certificate verify failed"):
        RabbitQueues(f"{url}{'&' if '?' in url else '?'}patience=1").names()
