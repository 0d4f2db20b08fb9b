"""Durations that cannot be: one paragraph with the line of the user's program and what to write instead."""

import re
from collections.abc import Callable
from datetime import timedelta

import pytest

from penstock import Count, Flow, Hopping, Session, Sliding, Tumbling
from penstock.errors import BadInput
from penstock.flow.stream import Stream


def orders(**settings: object) -> Stream:
    return Flow("shop").stream("orders", "id string, at timestamp", time="at", **{"lateness": "1 second"} | settings)  # type: ignore[arg-type]


WRONG: list[tuple[Callable[[], object], str, str | None]] = [
    (lambda: Tumbling(60), "cannot read window size 60", 'write it like "60 seconds"'),  # type: ignore[arg-type]
    (lambda: Tumbling("1 minit"), "cannot read window size '1 minit'", None),
    (lambda: Tumbling("-1 minute"), "window size must not be negative: '-1 minute'", 'leave the sign out: "1 minute"'),
    (lambda: Tumbling(timedelta(seconds=-90)), "window size must not be negative: '-1 minute 30 seconds'", None),
    (lambda: Hopping("1 minute", every=30), "cannot read every 30", 'write it like "30 seconds"'),  # type: ignore[arg-type]
    (lambda: Hopping("1 minute", "30 seconds", offset=5), "cannot read offset 5", 'write it like "5 seconds"'),  # type: ignore[arg-type]
    (lambda: Sliding(3600.5), "cannot read window size 3600.5", None),  # type: ignore[arg-type]
    (lambda: Session(None), "cannot read gap None", None),  # type: ignore[arg-type]
    (lambda: Count("100"), "a count window needs a number of rows", "write it like Count(100)"),  # type: ignore[arg-type]
    (lambda: orders(lateness=10), "cannot read lateness 10", 'write it like "10 seconds"'),
    (lambda: orders(lateness="-10 seconds"), "lateness must not be negative", None),
    (lambda: orders(idle=5), "cannot read idle 5", None),
    (lambda: orders().last(5), "cannot read size 5", None),  # type: ignore[arg-type]
    (lambda: orders().group_by("id", keep=True), "cannot read keep True", None),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("write", "what", "hint"), WRONG)
def test_a_duration_that_cannot_be_is_told_with_the_line_that_says_it(
    write: Callable[[], object], what: str, hint: str | None
) -> None:
    with pytest.raises(BadInput) as raised:
        write()
    assert raised.value.what.startswith(what)
    assert any(re.search(r"test_wrong_durations\.py:\d+", line) for line in raised.value.detail), raised.value
    assert raised.value.hint
    assert hint is None or hint == raised.value.hint


def test_two_selects_of_one_table_are_told_apart_by_what_select_takes() -> None:
    flow = Flow("shop")
    users = flow.table("users", "id string, name string, country string", key="id")
    stream = flow.stream("orders", "id string, at timestamp", time="at", lateness="1 second")
    for i, column in enumerate(("name", "country")):
        stream.enrich(users.select("id", column), on="id").view(f"v{i}")
    with pytest.raises(BadInput, match="two steps would be called 'select-users'") as raised, flow.test():
        pass
    assert "test_wrong_durations.py" in str(raised.value)
    assert 'with .named("…") behind it' in str(raised.value.hint)
    assert "name=" not in str(raised.value.hint), "name= of a select is a column"
