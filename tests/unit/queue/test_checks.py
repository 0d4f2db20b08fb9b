"""Whether a queue, a message, a consumer or a settlement can be as it is given. What is refused: the suite of queues."""

import itertools
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadInput
from penstock.queue.checks import (
    POLICIES,
    Ids,
    check_consumer,
    check_message,
    check_messages,
    check_settlements,
    check_spec,
    readable,
)
from penstock.queue.port import Binding, Consumer, Limit, Message, QueueSpec, Settlement

YEAR = timedelta(days=366)


def test_anything_that_makes_sense_can_be() -> None:
    check_spec(QueueSpec("emails"))
    bindings, limit = (Binding("a.#", {"x": b""}, True),), Limit("drop-oldest", 1, 1)
    check_spec(QueueSpec("a" * 190, "orders", bindings, YEAR, 1, YEAR, True, limit, "dead"))
    check_spec(QueueSpec("emails", "emails", limit=Limit("push-back", 5)))
    check_message(Message(b"", "x" * 200, "", {"ü": b""}, 9, YEAR, YEAR, "a.b"))
    check_consumer(Consumer("größe 1", 1, YEAR), 10**9)
    check_settlements([Settlement("1-1", "nack", timedelta(0)), Settlement("1-1", "extend", YEAR), Settlement("1-1", "reject")])


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_but_the_buffer_needs_a_limit(policy: str) -> None:
    spec = QueueSpec("emails", limit=Limit(policy))  # type: ignore[arg-type]
    if policy == "buffer":
        check_spec(spec)
    else:
        with pytest.raises(BadInput, match=f"{policy} needs a limit"):
            check_spec(spec)


def test_a_name_that_leaves_no_room_for_the_dead_letters_is_refused() -> None:
    with pytest.raises(BadInput):
        check_spec(QueueSpec("a" * 198))
    check_spec(QueueSpec("a" * 198, dead="dead"))


odd = st.none() | st.integers(-1, 11) | st.text(max_size=3) | st.binary(max_size=3) | st.floats() | st.just(timedelta(-1))


@given(st.builds(Message, odd, odd, odd, odd, odd, odd, odd, odd))
def test_whatever_is_given_it_is_refused_politely_or_can_be_sent(message: Message) -> None:
    with suppress(BadInput):
        check_messages([Message(b"fine"), message])
        assert isinstance(message.body, bytes)
        assert isinstance(message.id, str)
        assert message.key is None or readable(message.key) == message.key
        assert readable(message.route) == message.route


@given(st.text())
def test_readable_text_can_be_written_and_stays_if_it_could(text: str) -> None:
    assert readable(text).encode() is not None
    assert readable(readable(text)) == readable(text)
    assert readable(text) == text or any(0xD800 <= ord(letter) < 0xE000 for letter in text)


# Ids


def test_threads_get_ids_of_their_own() -> None:
    ids = Ids()
    with ThreadPoolExecutor(8) as threads:
        named = [m.id for part in threads.map(lambda _: ids.named([Message(b"")] * 500), range(40)) for m in part]
    assert len(set(named)) == 20_000
    assert all(0 < len(id) <= 200 and id.isprintable() for id in named)


def test_those_that_have_an_id_keep_it_and_the_rest_of_a_message_stays() -> None:
    mine = Message(b"a", "mine")
    full = Message(b"b", "", "k", {"x": b"y"}, 3, timedelta(1), timedelta(2), "a.b")
    kept, named = Ids().named([mine, full])
    assert kept is mine
    assert isinstance(named, Message)
    assert named == full._replace(id=named.id)


def test_a_process_that_is_forked_off_gives_other_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    ids, copy = Ids(), Ids()
    vars(copy).update(vars(ids) | {"_numbers": itertools.count(1)})  # what a fork leaves both sides with
    mine = ids.named([Message(b"")])[0].id
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert copy.named([Message(b"")])[0].id != mine


@pytest.mark.parametrize("message", [Message(b"a"), Message(b"a", "id", "key", {"h": b"v"}, 3, timedelta(1), timedelta(2), "a.b")])
def test_messages_go_to_other_processes(message: Message) -> None:
    assert pickle.loads(pickle.dumps(message)) == message  # noqa: S301
