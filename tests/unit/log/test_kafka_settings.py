"""How a Kafka broker is reached: an allow-list, and secrets that are named, never written (FAULTS 58)."""

import copy
import pickle
from pathlib import Path

import pytest

from penstock.errors import BadInput
from penstock.log.kafka.settings import KafkaSettings
from penstock.log.open import check_url, open_log

SASL = "security=sasl_tls&sasl=SCRAM-SHA-512&user=shop&password=env:SHOP_PASSWORD"


def test_servers_and_options_are_read_from_the_url() -> None:
    settings = KafkaSettings.of("kafka://a:9092,[::1]:9093?prefix=shop.&replication=3&security=tls&ca=/etc/ca.pem")
    assert settings.servers == ("a:9092", "[::1]:9093")
    assert (settings.prefix, settings.replication) == ("shop.", 3)
    client = settings.client()
    assert client["security.protocol"] == "ssl"
    assert client["ssl.ca.location"] == "/etc/ca.pem"
    assert "prefix" not in client


@pytest.mark.parametrize(
    "url",
    [
        "kafka://",
        "kafka://host",
        "kafka://host:0",
        "kafka://host:99999",
        "kafka://ho st:9092",
        "kafka://user:word@host:9092",
        "kafka://host:9092/topic",
        "kafka://host:9092#x",
        "kafka://host:9092?prefix",
        "kafka://host:9092?prefix=a&prefix=b",
        "kafka://host:9092?prefix=a/b",
        "kafka://host:9092?prefix=_penstock_",
        "kafka://host:9092?replication=0",
        "kafka://host:9092?replication=many",
        "kafka://host:9092?security=ssl3",
        "kafka://host:9092?sasl=PLAIN&user=a&password=env:X",
        "kafka://host:9092?security=sasl_tls",
        "kafka://host:9092?registry=ftp://x",
        "kafka://host:9092?registry=http://u:p@x",
        "http://host:9092",
        "file:///etc/passwd",
    ],
)
def test_what_is_no_address_of_a_log_is_refused(url: str) -> None:
    with pytest.raises(BadInput):
        check_url(url)


@pytest.mark.parametrize(
    "name",
    [
        # Code or tokens from elsewhere, by way of Java's client (CVE-2023-25194, CVE-2025-27817 and their kin) …
        "sasl.jaas.config",
        "sasl.login.class",
        "sasl.login.callback.handler.class",
        "sasl.client.callback.handler.class",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.assertion.file",
        "ssl.engine.factory.class",
        "ssl.truststore.location",
        "key.deserializer",
        "value.deserializer",
        "interceptor.classes",
        "metric.reporters",
        "partitioner.class",
        "config.providers",
        # … and by way of the client that is used here.
        "plugin.library.paths",
        "ssl.engine.location",
        "ssl.providers",
        "sasl.kerberos.kinit.cmd",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.method",
        "oauth_cb",
        "statistics.interval.ms",
        "debug",
        "enable.ssl.certificate.verification",
        "ssl.endpoint.identification.algorithm",
        "group.id",
        "auto.offset.reset",
        "isolation.level",
        "transactional.id",
        "bootstrap.servers",
        "SECURITY",
        "ca ",
        "",
    ],
)
def test_an_option_that_is_not_on_the_list_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="is no option of a Kafka log"):
        KafkaSettings.of(f"kafka://host:9092?{name.replace(' ', '%20')}=x")


@pytest.mark.parametrize(
    "value",
    ["OAUTHBEARER", "GSSAPI", "plain", "com.sun.security.auth.module.JndiLoginModule"],
)
def test_only_passwords_and_scram_are_spoken(value: str) -> None:
    with pytest.raises(BadInput, match="not on the list"):
        KafkaSettings.of(f"kafka://host:9092?security=sasl_tls&sasl={value}&user=a&password=env:X")


@pytest.mark.parametrize(
    "path", ["file:/etc/ca.pem", "file:///etc/ca.pem", "http://x/ca.pem", "ca.pem", "../ca.pem", "//x/y", "/a\n/b", "jks:/x"]
)
def test_a_file_is_an_absolute_path_and_nothing_more(path: str) -> None:
    with pytest.raises(BadInput):
        KafkaSettings.of("kafka://host:9092").with_options(security="tls", ca=path)


@pytest.mark.parametrize("given", ["hunter2", "env:", "env:A B", "file:relative", "file:/a:b", "cmd:echo x", "ENV:X", "${env:X}"])
def test_a_secret_is_named_and_never_written(given: str) -> None:
    with pytest.raises(BadInput, match="must name a secret, not be one") as refused:
        KafkaSettings.of("kafka://host:9092").with_options(security="sasl_tls", sasl="PLAIN", user="a", password=given)
    assert "hunter2" not in str(refused.value)


def test_the_secret_goes_to_the_client_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "hunter2")
    settings = KafkaSettings.of(f"kafka://host:9092?{SASL}")
    assert settings.client()["sasl.password"] == "hunter2"
    assert settings.client()["security.protocol"] == "sasl_ssl"
    for text in (repr(settings), str(settings), repr(open_log(url=f"kafka://host:9092?{SASL}")), repr(pickle.dumps(settings))):
        assert "hunter2" not in text
    assert "SHOP_PASSWORD" not in repr(settings)
    assert copy.deepcopy(settings) == settings


def test_a_secret_that_is_not_there_is_told_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHOP_PASSWORD", raising=False)
    with pytest.raises(BadInput, match="SHOP_PASSWORD is not set"):
        KafkaSettings.of(f"kafka://host:9092?{SASL}").client()


def test_a_file_with_a_secret_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("hunter2\n")
    settings = KafkaSettings.of(f"kafka://host:9092?security=sasl_tls&sasl=PLAIN&user=a&password=file:{file}")
    file.chmod(0o644)
    with pytest.raises(BadInput, match="others can read"):
        settings.client()
    file.chmod(0o600)
    assert settings.client()["sasl.password"] == "hunter2"
    file.write_bytes(b"")
    with pytest.raises(BadInput, match="is empty"):
        settings.client()
    file.unlink()
    with pytest.raises(BadInput, match="cannot be read"):
        settings.client()


def test_a_settings_file_has_the_same_words_and_the_url_has_the_last(tmp_path: Path) -> None:
    file = tmp_path / "kafka.toml"
    file.write_text('prefix = "a."\nreplication = 3\nsecurity = "tls"\n')
    settings = KafkaSettings.of(f"kafka://host:9092?settings={file}&prefix=b.")
    assert (settings.prefix, settings.replication, settings.get("security")) == ("b.", 3, "tls")
    for text in ('"sasl.jaas.config" = "x"', "prefix = [1]", "nonsense", 'password = "hunter2"', "replication = true"):
        file.write_text(text)
        with pytest.raises(BadInput) as refused:
            KafkaSettings.of(f"kafka://host:9092?settings={file}")
        assert "hunter2" not in str(refused.value)
    with pytest.raises(BadInput, match="cannot be read"):
        KafkaSettings.of(f"kafka://host:9092?settings={tmp_path}/none.toml")


def test_plain_text_to_another_machine_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="unencrypted"):
        KafkaSettings.of("kafka://broker.example:1").warn_of_plain_text()
    KafkaSettings.of("kafka://127.0.0.1:1").warn_of_plain_text()
    KafkaSettings.of("kafka://broker.example:1?security=tls").warn_of_plain_text()


def test_the_log_of_a_program_is_chosen_by_url_then_variable_then_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PENSTOCK_LOG", raising=False)
    assert repr(open_log(tmp_path)).startswith("<penstock.log.file.log.FileLog")
    monkeypatch.setenv("PENSTOCK_LOG", "kafka://one:9092")
    assert repr(open_log(tmp_path)) == "KafkaLog(kafka://one:9092)"
    assert repr(open_log(tmp_path, "kafka://two:9092")) == "KafkaLog(kafka://two:9092)"
