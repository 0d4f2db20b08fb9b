"""How a RabbitMQ is reached: an allow-list, and secrets that are named, never written (FAULTS 58)."""

import pickle
from pathlib import Path

import pytest

from penstock.errors import BadInput
from penstock.queue.rabbitmq.settings import RabbitSettings

pytest.importorskip("pika")


def test_hosts_vhost_and_options_are_read_from_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RABBIT_PASSWORD", "tip-top-secret")
    settings = RabbitSettings.of(
        "amqps://sh%40p@a,[::1]:5673/sales%2Feu?password=env:RABBIT_PASSWORD&prefix=shop.&queues=classic&patience=3&heartbeat=7"
    )
    assert settings.hosts == (("a", 5671), ("[::1]", 5673))
    assert (settings.user, settings.vhost, settings.prefix, settings.kind, settings.patience) == (
        "sh@p",
        "sales/eu",
        "shop.",
        "classic",
        3.0,
    )
    first, second = settings.parameters()
    assert (first.host, first.port, second.host, second.port) == ("a", 5671, "::1", 5673)
    assert (first.credentials.username, first.credentials.password) == ("sh@p", "tip-top-secret")
    assert (first.virtual_host, first.heartbeat, first.ssl_options.server_hostname) == ("sales/eu", 7, "a")


def test_without_a_user_the_guest_comes_to_the_main_vhost() -> None:
    [parameters] = RabbitSettings.of("amqp://localhost").parameters()
    assert (parameters.port, parameters.virtual_host, parameters.credentials.username) == (5672, "/", "guest")
    assert parameters.ssl_options is None


@pytest.mark.parametrize(
    "url",
    [
        "amqp://",
        "amqp:///vhost",
        "http://host",
        "amqp://host:0",
        "amqp://host:99999",
        "amqp://ho st",
        "amqp://[::1",
        "amqp://user:word@host",
        "amqp://user@host",
        "amqp://host#x",
        "amqp://host?prefix",
        "amqp://host?prefix=a&prefix=b",
        "amqp://host?prefix=a/b",
        "amqp://host?prefix=amq.",
        "amqp://host?queues=streams",
        "amqp://host?heartbeat=0",
        "amqp://host?patience=long",
        "amqp://host?ca=ca.pem",
        "amqp://host?ca=//server/share",
        "amqp://host?locale=en",
        "amqp://user@host?password=word",
        "amqp://user@host?password=file:relative",
    ],
)
def test_what_is_no_address_of_a_rabbitmq_is_refused(url: str) -> None:
    with pytest.raises(BadInput):
        RabbitSettings.of(url)


def test_secrets_are_in_no_text_and_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RABBIT_PASSWORD", "tip-top-secret")
    settings = RabbitSettings.of("amqp://shop@127.0.0.1/v?password=env:RABBIT_PASSWORD&prefix=a.")
    settings.parameters()
    assert str(settings) == repr(settings) == "amqp://shop@127.0.0.1:5672/v?prefix=a."
    assert b"tip-top-secret" not in pickle.dumps(settings)
    with pytest.raises(BadInput) as caught:
        RabbitSettings.of("amqp://shop@127.0.0.1?password=tip-top-secret")
    assert "tip-top-secret" not in str(caught.value)


def test_a_secret_may_stand_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "word").write_text("tip-top-secret\n")
    (tmp_path / "word").chmod(0o600)
    [parameters] = RabbitSettings.of(f"amqp://shop@127.0.0.1?password=file:{tmp_path / 'word'}").parameters()
    assert parameters.credentials.password == "tip-top-secret"


def test_what_travels_in_the_open_is_told() -> None:
    with pytest.warns(UserWarning, match="rabbit-1 unencrypted"):
        RabbitSettings.of("amqp://rabbit-1").parameters()
    RabbitSettings.of("amqps://rabbit-1").parameters()
