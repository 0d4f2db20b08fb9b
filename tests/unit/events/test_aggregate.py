"""Aggregates fold their events, and any class with `apply` does."""

from dataclasses import dataclass

import pytest

from penstock.errors import BadInput
from penstock.events import Aggregate, fold
from penstock.events.aggregate import initial


@dataclass(frozen=True)
class Sum:
    """Immutable: what `apply` returns is the next state."""

    total: int = 0

    def apply(self, event: int) -> "Sum":
        return Sum(self.total + event)


class Silent(Aggregate):
    pass


def test_a_state_that_is_immutable_is_replaced() -> None:
    assert fold(Sum(), [1, 2, 3]) == Sum(6)


def test_an_aggregate_has_to_say_what_an_event_changes() -> None:
    with pytest.raises(NotImplementedError, match="Silent"):
        Silent("s").record("event")


def test_what_has_no_apply_cannot_be_folded() -> None:
    with pytest.raises(BadInput, match="apply"):
        initial(dict, "x")


def test_the_id_of_an_event_can_be_given() -> None:
    class Counter(Aggregate):
        def apply(self, event: object) -> None:
            return None

    counter = Counter("c")
    counter.record(1, id="first")
    counter.record(2)
    assert counter.event_ids[0] == "first"
    assert len(set(counter.event_ids)) == 2
