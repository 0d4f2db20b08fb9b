"""Which hosts a webhook may call: no inner address unless it is named, whatever it is called."""

import pytest

from penstock.errors import BadInput
from penstock.sinks.actions.http.addresses import Endpoint, Hosts, public
from penstock.sinks.actions.port import Refused, Unavailable

INNER = [
    "127.0.0.1",
    "127.8.8.8",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "224.0.0.1",
    "255.255.255.255",
    "192.0.2.1",
    "::1",
    "::",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fec0::1",
    "ff02::1",
    "no address",
]


@pytest.mark.parametrize("address", INNER)
def test_an_inner_address_is_not_public(address: str) -> None:
    assert not public(address)


@pytest.mark.parametrize("address", ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "::ffff:93.184.215.14"])
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert public(address)


@pytest.mark.parametrize("host", ["localhost", "2130706433", "0x7f.1", "017700000001", "127.1", "inner.example", "[::1]"])
@pytest.mark.parametrize("address", INNER[:-1])
def test_a_host_with_an_inner_address_is_refused_whatever_it_is_called(host: str, address: str) -> None:
    endpoint = Endpoint.of(f"https://{host}/x")
    with pytest.raises(Refused, match="not public"):
        Hosts(()).address(endpoint, lambda host, port: [address])


def test_one_inner_address_among_public_ones_is_enough_to_refuse() -> None:
    with pytest.raises(Refused):
        Hosts(()).address(Endpoint.of("https://a.example/"), lambda host, port: ["93.184.215.14", "10.0.0.1"])


def test_a_host_that_is_named_may_be_anywhere_and_others_may_not_be_called() -> None:
    hosts = Hosts.of(["Inner.example", "*.push.example", "::1"])
    for host in ("inner.example", "a.push.example", "[::1]"):
        assert hosts.address(Endpoint.of(f"http://{host}/"), lambda host, port: ["10.0.0.1"]) == "10.0.0.1"
    for host in ("other.example", "push.example", "inner.example.evil.example"):
        with pytest.raises(Refused, match="not among those"):
            hosts.address(Endpoint.of(f"http://{host}/"), lambda host, port: ["93.184.215.14"])


def test_a_name_that_cannot_be_found_may_be_found_later() -> None:
    def absent(host: str, port: int) -> list[str]:
        raise OSError(-2, "Name or service not known")

    with pytest.raises(Unavailable, match="cannot be found"):
        Hosts(()).address(Endpoint.of("https://a.example/"), absent)


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://a.example/",
        "gopher://a.example/",
        "unix:///run/docker.sock",
        "//a.example/",
        "https://",
        "https:///path",
        "https://a.example:port/",
        "https://a.example/\r\nX: y",
        "https://a.example/a b",
        "https://user:canary@a.example/",
        "https://canary@a.example/",
        "https://[::1/",
    ],
)
def test_a_url_that_is_none_of_a_receiver_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(BadInput) as refused:
        Endpoint.of(url)
    assert "canary" not in str(refused.value)


def test_a_port_stands_behind_the_host_where_it_is_not_the_usual_one() -> None:
    assert [str(Endpoint.of(u)) for u in ("https://a.example/x", "https://a.example:444", "http://[::1]:80/?q=1")] == [
        "a.example",
        "a.example:444",
        "[::1]",
    ]
