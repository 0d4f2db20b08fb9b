"""What dead letters say of their end."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.queue.dead_letters import HEADER, DeadLetter, as_dead_letter, dead_letter, no_queue, without_death
from penstock.queue.port import Message
from penstock.queue.state.routing import FOR

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
MESSAGES = st.builds(
    Message,
    st.binary(),
    st.text(max_size=9),
    st.none() | TEXT,
    st.dictionaries(TEXT.filter(lambda name: name not in (HEADER, FOR)), st.binary()),
    st.integers(0, 9),
    delay=st.just(timedelta(0)),
    ttl=st.none(),
    route=st.sampled_from(["", "a.b"]),
)


@given(MESSAGES, TEXT, st.integers(0, 10**9), TEXT)
def test_a_dead_letter_says_it_all_and_is_the_message_it_was(message: Message, queue: str, count: int, reason: str) -> None:
    letter = as_dead_letter(message, queue, "emails/0/7", count, reason, 1_705_312_800_000_000)
    assert dead_letter(letter) == DeadLetter(queue, reason, count, "emails/0/7", "2024-01-15T10:00:00Z")
    assert without_death(letter) == message


def test_a_message_that_dies_again_says_how_it_died_last() -> None:
    once = as_dead_letter(Message(b"a"), "emails", "emails/1", 3, "first", 0)
    twice = as_dead_letter(once, "emails.dead", "emails.dead/1", 1, "second", 0)
    said = dead_letter(twice)
    assert said
    assert (said.queue, said.reason) == ("emails.dead", "second")


def test_a_dead_letter_waits_for_nothing_and_does_not_expire() -> None:
    letter = as_dead_letter(Message(b"a", delay=timedelta(1), ttl=timedelta(1)), "emails", "", 0, "", 0)
    assert (letter.delay, letter.ttl) == (timedelta(0), None)


def test_a_message_for_one_queue_alone_is_a_letter_like_any_other_when_it_dies() -> None:
    letter = as_dead_letter(Message(b"a", headers={FOR: b"emails", "x": b"y"}), "emails", "", 1, "", 0)
    assert set(letter.headers) == {"x", HEADER}


@pytest.mark.parametrize("said", [b"", b"{}", b"[]", b"5", b"null", b"\xff", b'{"queue": 1}', b'{"count": "x"}', b'"text"'])
def test_what_others_put_into_the_header_is_no_dead_letter(said: bytes) -> None:
    assert dead_letter(Message(b"", headers={HEADER: said})) is None


@given(st.binary())
def test_no_bytes_in_the_header_do_harm(said: bytes) -> None:
    assert dead_letter(Message(b"", headers={HEADER: said})) is None or said


@pytest.mark.parametrize("count", [b"1e400", b"-1e400", b"null", b'"many"', b"[]", b"1.5e300"])
def test_a_count_that_is_none_does_no_harm(count: bytes) -> None:
    said = b'{"queue": "a", "reason": "b", "origin": "c", "at": "d", "count": ' + count + b"}"
    found = dead_letter(Message(b"", headers={HEADER: said}))
    assert found is None or found.count > 0


def test_close_names_are_told() -> None:
    assert "did you mean emails" in str(no_queue("email", ["emails", "videos"]))
    assert "penstock queue list" in str(no_queue("x", ["emails"]))
