"""Messages as AMQP has them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadInput
from penstock.queue.dead_letters import dead_letter
from penstock.queue.port import Message
from penstock.queue.rabbitmq.amqp.channel import Fetched
from penstock.queue.rabbitmq.amqp.envelope import check_sendable, count_of, decode, header_of, properties_of

pika = pytest.importorskip("pika")
NOW = 1_705_312_800_000_000
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)


def got(properties: Any, body: bytes = b"", redelivered: bool = False, exchange: str = "", key: str = "t.emails") -> Fetched:
    return Fetched(1, redelivered, exchange, key, properties, body)


def open_(found: Fetched) -> Any:
    return decode(found, "t.emails", "t.", "penstock.delay.")


@given(st.binary(), TEXT, st.none() | TEXT, st.dictionaries(TEXT.filter(bool), st.binary()), st.integers(0, 9))
def test_a_message_comes_out_of_its_envelope_as_it_went_in(
    body: bytes, id: str, key: str | None, headers: dict[str, bytes], priority: int
) -> None:
    sent = Message(body, id, key, headers, priority, route="a.b")
    properties = properties_of(sent, header_of(sent, NOW), NOW)
    encoded = b"".join(properties.encode())
    again = pika.BasicProperties()
    again.decode(encoded)
    message, header = open_(got(again, body))
    assert message == sent
    assert header.sent == NOW


def test_times_go_with_the_message() -> None:
    sent = Message(b"", delay=timedelta(seconds=2), ttl=timedelta(seconds=5))
    properties = properties_of(sent, header_of(sent, NOW), NOW)
    assert properties.expiration == "5000"
    _, header = open_(got(properties))
    assert (header.due, header.expires) == (NOW + 2_000_000, NOW + 5_000_000)
    long = sent._replace(ttl=timedelta(days=100))
    assert properties_of(long, header_of(long, NOW), NOW).expiration is None


@pytest.mark.parametrize("header", ["not JSON", "[1]", '{"unknown": 1}', 5, None])
def test_a_header_of_ours_that_cannot_be_read_is_another_programs(header: object) -> None:
    properties = pika.BasicProperties(headers={"penstock-message": header}, timestamp=7)
    message, header = open_(got(properties, b"x", exchange="events", key="a.b"))
    assert (message.body, message.route, header.sent) == (b"x", "a.b", 7_000_000)


@pytest.mark.parametrize(
    ("headers", "redelivered", "count"),
    [
        ({"x-delivery-count": 0}, False, 0),  # 3.10
        ({"x-delivery-count": 2}, True, 2),
        (None, False, 0),  # 4.0, the first time
        ({"x-acquired-count": 3}, True, 0),  # 4.3: had, and given back untried
        ({"x-acquired-count": 3, "x-delivery-count": 1}, True, 1),
        (None, True, 1),  # a classic queue
    ],
)
def test_tries_are_counted_on_every_version(headers: dict[str, int] | None, redelivered: bool, count: int) -> None:
    found = got(pika.BasicProperties(headers=headers), redelivered=redelivered)
    assert count_of(found, open_(found)[1]) == count


def test_a_letter_that_the_broker_buried_looks_like_all_others() -> None:
    sent = Message(b"late", "m-1", "k", {"a": b"b"}, route="x.y", ttl=timedelta(seconds=1))
    properties = properties_of(sent, header_of(sent, NOW), NOW)
    rested = {"queue": "penstock.delay.100", "reason": "expired", "count": 1}
    death = {"queue": "t.mails", "reason": "expired", "count": 1, "time": datetime(2024, 1, 15, 10, tzinfo=UTC)}
    properties.headers |= {"x-death": [death, rested], "x-first-death-reason": "expired"}
    message, header = decode(got(properties), "t.mails.dead", "t.", "penstock.delay.")
    letter = dead_letter(message)
    assert letter is not None
    assert (letter.queue, letter.reason, letter.origin, letter.at[:13]) == (
        "mails",
        "nobody took it in time",
        "mails/m-1",
        "2024-01-15T10",
    )
    assert {name: value for name, value in message.headers.items() if name == "a"} == {"a": b"b"}
    assert (message.route, header.expires) == ("x.y", 0)
    properties.headers["x-death"] = [rested]
    assert dead_letter(decode(got(properties), "t.mails", "t.", "penstock.delay.")[0]) is None


def test_what_amqp_cannot_carry_is_refused() -> None:
    for wrong in (
        Message(b"", "ü" * 200),
        Message(b"", headers={"ü" * 200: b""}),
        Message(b"", headers={"x-death" + 240 * "x": b""}),
    ):
        with pytest.raises(BadInput):
            check_sendable(wrong, priorities=True)
    with pytest.raises(BadInput, match=r"4\.3"):
        check_sendable(Message(b"", priority=1), priorities=False)
