"""Replies of a Redis that nobody reads one by one: only errors among them matter."""

import socket
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.sinks.stores.redis.address import Address
from penstock.sinks.stores.redis.resp import Connection, ReplyError

Pair = tuple[Connection, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A connection, and its other end."""
    with tempfile.TemporaryDirectory() as place, socket.socket(socket.AF_UNIX) as listener:
        path = Path(place) / "s"
        listener.bind(str(path))
        listener.listen()
        with closing(Connection(Address.of(f"unix://{path}"))) as connection:
            server, _ = listener.accept()
            with server:
                yield connection, server


def said(pair: Pair, *parts: bytes) -> Connection:
    """What the server says; each part is read before the next one is sent."""
    connection, server = pair
    server.sendall(parts[0])
    for part in parts[1:]:
        connection.skip(1)
        server.sendall(part)
    server.close()
    return connection


def test_words_and_numbers_are_skipped_and_what_follows_is_still_there(pair: Pair) -> None:
    connection = said(pair, b"+OK\r\n" + b"+QUEUED\r\n" * 3 + b"*2\r\n:4\r\n:-1\r\n$2\r\nhi\r\n")
    assert connection.skip(4) is None
    assert connection.length() == 2
    assert connection.skip(2) is None
    assert connection.reply() == b"hi"


def test_the_first_of_several_errors_is_told(pair: Pair) -> None:
    connection = said(pair, b"+QUEUED\r\n-NOPERM no\r\n+QUEUED\r\n-OOM full\r\n-EXECABORT because\r\n")
    assert str(connection.skip(4)) == "NOPERM no"
    found = connection.length()
    assert isinstance(found, ReplyError)
    assert found.code == "EXECABORT"


def test_an_error_is_told_wherever_what_arrives_is_cut(pair: Pair) -> None:
    connection = said(pair, b"+OK\r\n+QUE", b"UED\r\n-OO", b"M full\r\n")
    assert str(connection.skip(1)) == "OOM full"


def test_more_replies_than_fit_into_the_buffer(pair: Pair) -> None:
    connection, server = pair
    server.settimeout(10)
    for n in range(100):
        server.sendall(b":1\r\n" * 999 + b"-ERR %d\r\n" % n)
        found = connection.skip(1000)
        assert str(found) == f"ERR {n}"


def test_no_list_is_told_apart_from_an_empty_one(pair: Pair) -> None:
    connection = said(pair, b"*-1\r\n*0\r\n")
    assert connection.length() is None
    assert connection.length() == 0


@pytest.mark.parametrize("end", [b"", b"+QUEU", b"+QUEUED\r"])
def test_a_server_that_goes_away_in_between_is_noticed(pair: Pair, end: bytes) -> None:
    connection = said(pair, b"+QUEUED\r\n" + end)
    with pytest.raises(ConnectionError, match="closed"):
        connection.skip(2)


def test_what_is_no_reply_of_one_line_is_not_skipped(pair: Pair) -> None:
    connection = said(pair, b"+QUEUED\r\n$2\r\nhi\r\n")
    with pytest.raises(ConnectionError, match="no reply"):
        connection.skip(3)
