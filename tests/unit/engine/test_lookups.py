"""Lookups at their client: who is asked for what, how often, how long an answer counts, and what is said when none comes."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.columns import POSITION, TIME, WATERMARK
from penstock.core.schema import Schema
from penstock.engine.lookup.rows import LookupClient, client_of, look_up
from penstock.errors import BadFlow, Unanswered
from penstock.flow.steps.lookups import asking
from penstock.plan import Lookup, Origin, Step

SETTINGS: dict[str, Any] = {
    "cache": "1 minute",
    "cache_keys": 100,
    "batch": 1000,
    "retries": 3,
    "pause": "1 second",
    "timeout": "10 seconds",
    "breaker": 10,
    "rest": "30 seconds",
}


@dataclass
class Service:
    """Somebody outside. Remembers what it was asked; fails as often as it is told to."""

    fails: int = 0
    asked: list[list[dict[str, Any]]] = field(default_factory=list)

    def __call__(self, keys: list[dict[str, Any]]) -> list[dict[str, Any] | None]:
        self.asked.append(keys)
        if self.fails:
            self.fails -= 1
            raise ConnectionError("line is dead")
        return [{"name": f"n{key['id']}", "age": key["id"]} if key["id"] % 2 else None for key in keys]


@dataclass
class Time:
    now: float = 0.0
    waited: list[float] = field(default_factory=list)

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.now += seconds


def step_of(remote: Any, on: str = "id", answers: str = "name string, age int", how: Any = "left", **other: Any) -> Step:
    on_error = other.pop("on_error", "dead")
    schema = Schema.of(f"{', '.join(f'{name} long' for name in on.split())}, {answers}")
    lookup = Lookup(remote, tuple(on.split()), how, Schema.of(answers), asking(**(SETTINGS | other)))
    return Step("who", ("orders",), lookup, schema, Origin("shop.py", 7), on_error=on_error)


def client(remote: Any, time: Time | None = None, **other: Any) -> LookupClient:
    clock = time or Time()
    return LookupClient(step_of(remote, **other), now=lambda: clock.now, wait=clock.wait)


def ask(at: LookupClient, *ids: int) -> list[Any]:
    return at.answers([(n,) for n in ids])[0]


# who is asked


def test_each_key_is_asked_for_once_and_answered_in_its_place() -> None:
    service = Service()
    answers, told = client(service).answers([(3,), (2,), (1,)])
    assert answers == [("n3", 3), None, ("n1", 1)]
    assert service.asked == [[{"id": 3}, {"id": 2}, {"id": 1}]]
    assert told == {"keys": 3, "calls": 1}


def test_many_keys_are_asked_for_in_batches() -> None:
    service = Service()
    _, told = client(service, batch=4).answers([(n,) for n in range(10)])
    assert [len(keys) for keys in service.asked] == [4, 4, 2]
    assert told["calls"] == 3


def test_an_answer_counts_until_it_is_too_old_also_where_it_was_none() -> None:
    service, time = Service(), Time()
    at = client(service, time, cache="1 minute")
    ask(at, 1, 2)
    time.now = 59.9
    _, told = at.answers([(1,), (2,)])
    assert told == {"keys": 2, "from cache": 2}
    time.now = 60.0
    assert ask(at, 1) == [("n1", 1)]
    assert len(service.asked) == 2


def test_without_a_cache_everybody_is_asked_again() -> None:
    service = Service()
    at = client(service, cache=None)
    ask(at, 1)
    ask(at, 1)
    assert len(service.asked) == 2
    assert not at.kept


def test_of_too_many_answers_the_least_recently_used_goes() -> None:
    service = Service()
    at = client(service, cache_keys=3)
    ask(at, 1, 3, 5)
    ask(at, 1)
    ask(at, 7)
    assert set(at.kept) == {(1,), (5,), (7,)}
    ask(at, 3)
    assert service.asked[-1] == [{"id": 3}]


# when it fails


def test_a_call_that_fails_is_repeated_after_ever_longer_pauses() -> None:
    service, time = Service(fails=3), Time()
    answers, told = client(service, time).answers([(1,)])
    assert answers == [("n1", 1)]
    assert told == {"keys": 1, "calls": 4, "failed calls": 3}
    assert all(low <= waited <= high for waited, (low, high) in zip(time.waited, ((0.5, 1), (1, 2), (2, 4)), strict=True))


def test_when_none_comes_it_is_said_who_failed_where_how_often_and_why() -> None:
    at = client(Service(fails=99))
    with pytest.raises(Unanswered) as failed:
        ask(at, 1)
    assert str(failed.value).splitlines() == [
        "Service did not answer: 4 calls failed in a row",
        '  step "who" (shop.py:7)',
        "  the last time: ConnectionError: line is dead",
        "  hint: nothing of this epoch counts and nothing is lost; the next one asks again",
    ]


def test_after_many_failures_in_a_row_nobody_is_asked_for_a_while_and_then_once() -> None:
    service, time = Service(fails=7), Time()
    at = client(service, time, breaker=6, rest="30 seconds")
    for _ in range(2):
        with pytest.raises(Unanswered):
            ask(at, 1)
    assert len(service.asked) == 6, "four, and two more"
    with pytest.raises(Unanswered, match="6 calls failed in a row, and nobody is asked for 30 s now"):
        ask(at, 1)
    assert len(service.asked) == 6
    time.now += 30
    with pytest.raises(Unanswered, match="7 calls failed in a row"):
        ask(at, 1)
    assert len(service.asked) == 7, "one try, and in peace again"
    time.now += 30
    assert ask(at, 1) == [("n1", 1)]
    assert (at.failed, at.closed) == (0, None)


def test_what_was_answered_before_a_failure_is_not_asked_for_again() -> None:
    service = Service()
    at = client(service, batch=2, retries=0)

    def second_fails(keys: list[dict[str, Any]]) -> Any:
        service.fails = int(len(service.asked) == 1)
        return service(keys)

    at = client(second_fails, batch=2, retries=0)
    with pytest.raises(Unanswered):
        ask(at, 1, 3, 5)
    assert ask(at, 1, 3, 5) == [("n1", 1), ("n3", 3), ("n5", 5)]
    assert service.asked == [[{"id": 1}, {"id": 3}], [{"id": 5}], [{"id": 5}]]


def test_a_call_that_takes_too_long_is_a_failure_and_holds_nobody_up() -> None:
    free, started = threading.Event(), threading.Event()
    calls: list[int] = []

    def slow_once(keys: list[dict[str, Any]]) -> Any:
        calls.append(len(keys))
        if len(calls) == 1:
            started.set()
            free.wait(60)
        return [{"name": "late" if len(calls) == 1 else "in time"} for _ in keys]

    try:
        answers, told = client(slow_once, timeout="50 ms").answers([(1,)])
        assert started.is_set()
        assert answers == [("in time", None)]
        assert told["failed calls"] == 1
        with pytest.raises(Unanswered, match="no answer within 50 ms"):
            ask(client(lambda keys: free.wait(60), timeout="50 ms", retries=0), 1)
    finally:
        free.set()


def test_a_timeout_that_the_function_itself_raises_is_told_as_its_own() -> None:
    def gives_up(keys: list[dict[str, Any]]) -> Any:
        raise TimeoutError("the service said so")

    with pytest.raises(Unanswered, match=r"(?s)the last time: TimeoutError: the service said so"):
        ask(client(gives_up), 1)


# what it may answer


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda keys: [None], "must give a list with an answer for each of 2 keys, and gave 1"),
        (lambda keys: {1: None}, "must give a list with an answer for each of 2 keys, and gave a dict"),
        (lambda keys: ["ann", None], r"must answer with a dict or None, and answered {'id': 1} with a str"),
        (lambda keys: [{"nam": "ann"}, None], r"answered {'id': 1} with 'nam', which is no column of schema="),
        (lambda keys: [{"age": "old"}, None], "column 'age' wants int, found the text 'old'"),
        (lambda keys: [{"age": 2**40}, None], "column 'age' wants int, found the number 1099511627776"),
    ],
)
def test_an_answer_of_another_form_is_refused_at_once(answer: Callable[..., Any], said: str) -> None:
    calls: list[int] = []
    at = client(lambda keys: (calls.append(1), answer(keys))[1], on_error="stop")
    with pytest.raises(BadFlow, match=said) as refused:
        ask(at, 1, 2)
    assert refused.value.hint == "its schema= is name string, age int"
    assert calls == [1], "asking again would not help"


def test_an_answer_that_cannot_be_used_concerns_its_key_alone() -> None:
    at = client(lambda keys: [{"age": "old"}, {"name": "ann", "age": 7}, ValueError("closed")])
    old, ann, closed = ask(at, 1, 2, 3)
    assert "column 'age' wants int, found the text 'old'" in old
    assert ann == ("ann", 7)
    assert "answered {'id': 3} with ValueError: closed" in closed


def test_values_are_taken_as_those_of_rows_are() -> None:
    at = client(
        lambda keys: [{"since": "2024-01-15T10:00:00Z", "share": "1.50"}] * len(keys), answers="since timestamp, share decimal(4,2)"
    )
    ((since, share),) = ask(at, 1)
    row = pa.table({"since": pa.array([since], at.lookup.answers.type("since")), "share": pa.array([share], pa.decimal128(4, 2))})
    assert [str(v) for v in row.to_pylist()[0].values()] == ["2024-01-15 10:00:00+00:00", "1.50"]


# rows


def rows_of(ids: list[tuple[int | None, ...]], names: list[str]) -> pa.Table:
    n = len(ids)
    columns = {name: pa.array([key[i] for key in ids], pa.int64()) for i, name in enumerate(names)}
    system = {TIME: pa.array(range(n), pa.int64()), WATERMARK: pa.array(range(n), pa.int64())}
    return pa.table(columns | system | {POSITION: pa.array([bytes([i % 256]) for i in range(n)])})


KEYS = st.lists(st.tuples(*[st.none() | st.integers(0, 4)] * 2), max_size=30)


@settings(deadline=None, max_examples=60)
@given(KEYS, st.sampled_from(["left", "inner"]))
def test_every_row_has_the_answer_of_its_key_and_keeps_its_time_and_place(ids: list[Any], how: str) -> None:
    seen: list[dict[str, Any]] = []

    def sums(keys: list[dict[str, Any]]) -> Any:
        seen.extend(keys)
        return [None if key["a"] == 0 else {"sum": key["a"] + key["b"]} for key in keys]

    step = step_of(sums, on="a b", answers="sum long", how=how)
    rows = rows_of(ids, ["a", "b"])
    out, fates, unfit = look_up(step, rows, (TIME, WATERMARK, POSITION))
    expected = [row | {"sum": row["a"] + row["b"] if row["a"] and row["b"] is not None else None} for row in rows.to_pylist()]
    wanted = [row for row in expected if how == "left" or row["sum"] is not None]
    assert out.to_pylist() == [{name: row[name] for name in out.column_names} for row in wanted]
    asked = {key for key in ids if None not in key}
    assert sorted(tuple(key.values()) for key in seen) == sorted(asked), "each once, and none with a null"
    answered = sum(row["sum"] is not None for row in expected)
    assert (fates["in"], fates["answered"], fates["unmatched"]) == (len(ids), answered, len(ids) - answered)
    assert unfit == []


def test_equal_floats_ask_once_however_they_are_written() -> None:
    asked: list[Any] = []
    lookup = Lookup(
        lambda keys: (asked.extend(keys), [{"n": 1}] * len(keys))[1], ("x",), "left", Schema.of("n long"), asking(**SETTINGS)
    )
    step = Step("who", ("s",), lookup, Schema.of("x double, n long"), Origin("f.py", 1))
    rows = pa.table({"x": [0.0, -0.0, float("nan"), -float("nan"), 1.5]})
    out, told, _ = look_up(step, rows, ())
    assert (len(asked), told["keys"]) == (3, 3)
    assert out["n"].to_pylist() == [1] * 5


def test_a_desk_belongs_to_its_step_alone() -> None:
    one, other = step_of(Service()), step_of(Service())
    assert client_of(one) is client_of(one)
    assert client_of(one) is not client_of(other)
    for _ in range(40):
        client_of(replace(one, node=replace(one.node)))
    assert not client_of(one).kept
