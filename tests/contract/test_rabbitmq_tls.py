"""A RabbitMQ behind TLS: who it is has to be proven."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import LogError
from penstock.queue.port import Consumer, Message, QueueSpec
from penstock.queue.rabbitmq.queues import RabbitQueues
from penstock.testing.servers.rabbitmq_server import RabbitServer
from tls_front import certificate_in, tls_before


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    return certificate_in(tmp_path)


@pytest.fixture
def port(certificate: Path, rabbitmq_server: RabbitServer) -> Iterator[int]:
    with tls_before(rabbitmq_server.port, certificate) as port:
        yield port


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
