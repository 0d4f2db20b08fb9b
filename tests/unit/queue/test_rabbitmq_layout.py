"""What is declared for a queue, by the kind and the version of the broker."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.queue.port import Limit, QueueSpec
from penstock.queue.rabbitmq.layout import LONGEST, Layout, two_digits


@pytest.mark.parametrize(
    ("kind", "version", "quorum", "forgiving"),
    [
        ("quorum", (3, 7, 28), False, False),
        ("quorum", (3, 10, 8), True, False),
        ("quorum", (4, 0, 5), True, False),
        ("quorum", (4, 3, 6), True, True),
        ("classic", (4, 3, 6), False, True),
    ],
)
def test_the_kind_is_one_that_the_broker_has(kind: str, version: tuple[int, ...], quorum: bool, forgiving: bool) -> None:
    layout = Layout("", kind, version)
    assert (layout.quorum, layout.forgiving) == (quorum, forgiving)


def test_a_quorum_queue_does_not_lose_what_it_hands_on_and_leaves_counting_to_us() -> None:
    found = Layout("t.", "quorum", (3, 10)).arguments(QueueSpec("emails"))
    assert (found["x-queue-type"], found["x-dead-letter-strategy"]) == ("quorum", "at-least-once")
    assert (found["x-dead-letter-exchange"], found["x-dead-letter-routing-key"]) == ("", "t.emails.dead")
    assert found["x-delivery-limit"] >= 1_000_000


def test_only_classic_queues_are_declared_with_priorities() -> None:
    assert Layout("", "classic", (3, 10)).arguments(QueueSpec("emails"))["x-max-priority"] == 9
    assert "x-max-priority" not in Layout("", "quorum", (4, 3)).arguments(QueueSpec("emails"))


def test_what_is_dropped_is_not_dead() -> None:
    layout = Layout("", "quorum", (3, 10))
    oldest = layout.arguments(QueueSpec("emails", limit=Limit("drop-oldest", 5, 100)))
    assert (oldest["x-overflow"], oldest["x-max-length"], oldest["x-max-length-bytes"]) == ("drop-head", 5, 100)
    assert "x-dead-letter-exchange" not in oldest
    newest = layout.arguments(QueueSpec("emails", limit=Limit("drop-newest", 5)))
    assert newest["x-overflow"] == "reject-publish"
    assert "x-max-length" not in layout.arguments(QueueSpec("emails", limit=Limit("buffer", 5)))


@given(st.integers(1, LONGEST))
def test_a_rest_is_as_long_as_asked_for_or_a_tenth_longer_and_there_are_few_of_them(milliseconds: int) -> None:
    found = two_digits(milliseconds)
    assert milliseconds <= found <= milliseconds * 1.1
    assert len(str(found).rstrip("0")) <= 2
