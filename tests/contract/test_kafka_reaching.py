"""Why a Kafka broker cannot be used is said within seconds, each cause by its name."""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import BadInput, Unreachable
from penstock.log.kafka import reaching
from penstock.log.open import open_log
from penstock.testing.servers.fixtures import missing
from penstock.testing.servers.kafka_broker import KafkaBroker
from penstock.testing.servers.processes import free_ports

LISTENERS = """
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},SASL://127.0.0.1:{sasl},TLS://127.0.0.1:{tls}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SASL://127.0.0.1:{sasl},TLS://127.0.0.1:{tls}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SSL
sasl.enabled.mechanisms=PLAIN
listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
  username="shop" password="right" user_shop="right";
ssl.keystore.type=PEM
ssl.keystore.location={place}/both.pem
"""


class Guarded(KafkaBroker):
    """A broker with a port for passwords and one for TLS beside its plain one."""

    def _lay_out(self, first: bool) -> None:
        super()._lay_out(first)
        port, controller = self.ports
        if first:
            self.sasl, self.tls = free_ports(2)
        with (self.place / "server.properties").open("a") as settings:
            settings.write(LISTENERS.format(port=port, controller=controller, sasl=self.sasl, tls=self.tls, place=self.place))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, kafka_broker: KafkaBroker) -> Iterator[Guarded]:
    if not shutil.which("openssl"):
        missing("there is no openssl here to make a certificate with")
    place = tmp_path_factory.mktemp("guarded")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(place / "key.pem"), "-out", str(place / "cert.pem")]
    subprocess.run([*made, *names], check=True, capture_output=True)
    (place / "both.pem").write_text((place / "key.pem").read_text() + (place / "cert.pem").read_text())
    with Guarded(place) as broker:
        yield broker


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIGHT", "right")
    monkeypatch.setenv("WRONG", "wrong")


def sasl(broker: Guarded, secret: str) -> str:
    return f"kafka://127.0.0.1:{broker.sasl}?security=sasl_plaintext&sasl=PLAIN&user=shop&password=env:{secret}"


def said(url: str) -> str:
    with pytest.raises(Unreachable) as failed:
        open_log(url=url).topics()
    return str(failed.value)


def test_whoever_asks_in_the_right_way_is_answered(broker: Guarded) -> None:
    assert open_log(url=sasl(broker, "RIGHT")).topics() == []
    assert open_log(url=f"kafka://127.0.0.1:{broker.tls}?security=tls&ca={broker.place}/cert.pem").topics() == []


def test_a_wrong_password_is_named(broker: Guarded) -> None:
    assert "the broker refuses user and password" in said(sasl(broker, "WRONG"))


def test_a_plain_client_is_told_that_the_port_may_want_passwords_or_tls(broker: Guarded) -> None:
    assert "closed the connection: it may want security=sasl_tls" in said(f"kafka://127.0.0.1:{broker.sasl}")
    assert "closed the connection: it may want security=sasl_tls" in said(f"kafka://127.0.0.1:{broker.tls}")


def test_tls_on_a_plain_port_and_a_certificate_that_nobody_vouches_for_are_named(broker: Guarded) -> None:
    assert "this port may speak no TLS" in said(f"kafka://127.0.0.1:{broker.port}?security=tls")
    assert "TLS could not be agreed upon" in said(f"kafka://127.0.0.1:{broker.tls}?security=tls")


def test_nobody_there_and_a_name_that_nobody_knows_are_named() -> None:
    [free] = free_ports(1)
    assert "nobody listens there" in said(f"kafka://127.0.0.1:{free}")
    assert "the name of the host is not known" in said("kafka://nobody.invalid:9092?security=tls")


def test_somebody_who_takes_the_connection_and_says_nothing_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaching, "FIRST", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert "it did not answer" in said(f"kafka://127.0.0.1:{silent.getsockname()[1]}")


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.write_text("secret")
    key.chmod(0o644)
    with pytest.raises(BadInput, match=r"key is in a file that others can read: .*key\.pem"):
        open_log(url=f"kafka://127.0.0.1:1?security=tls&key={key}").topics()
