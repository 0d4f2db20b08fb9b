"""Backoff, token bucket and circuit breaker: pure, the time is given."""

from datetime import timedelta

import pytest

from penstock.errors import BadInput
from penstock.sinks.actions.outbox.pace import CircuitBreaker, TokenBucket, pause
from penstock.sinks.actions.outbox.sending import Sending

SENDING = Sending(backoff=timedelta(seconds=1), longest=timedelta(seconds=60), opens_after=3)


def test_the_pause_doubles_up_to_the_longest_and_jitter_takes_up_to_a_half() -> None:
    assert [pause(SENDING, n, 1.0) for n in (1, 2, 3, 6, 7, 1000)] == [1, 2, 4, 32, 60, 60]
    assert pause(SENDING, 3, 0.0) == 2


def test_a_bucket_gives_its_rate_over_any_long_time_and_no_more_at_once() -> None:
    bucket, now, sent = TokenBucket(10.0, 0.0), 0.0, 0
    assert [bucket.take(0.0) for _ in range(10)] == [0.0] * 10
    while now < 100.0:
        wait = bucket.take(now)
        sent += not wait
        now += wait
    assert sent == pytest.approx(1_000, abs=1)
    assert TokenBucket(None, 0.0).take(0.0) == 0.0


def test_a_breaker_opens_after_failures_in_a_row_and_lets_one_probe_through() -> None:
    breaker = CircuitBreaker(SENDING, lambda: 1.0)
    for _ in range(2):
        breaker.fail(0.0)
    breaker.succeed()
    for _ in range(3):
        assert breaker.closed
        breaker.fail(10.0)
    assert not breaker.closed
    assert breaker.wait(10.0) == 1.0
    breaker.fail(10.5)  # under way when it opened
    assert breaker.wait(11.0) == 0.0
    breaker.start()
    assert breaker.wait(11.0) is None
    breaker.fail(11.0)
    assert breaker.wait(11.0) == 2.0
    breaker.start()
    breaker.succeed()
    assert breaker.closed


def test_a_receiver_may_ask_for_a_pause() -> None:
    breaker = CircuitBreaker(SENDING, lambda: 1.0)
    breaker.hold(30.0)
    assert (breaker.closed, breaker.wait(10.0), breaker.wait(30.0)) == (True, 20.0, 0.0)


@pytest.mark.parametrize("wrong", [{"retries": -1}, {"at_once": 0}, {"rate": 0}, {"rate": "many"}, {"backoff": "soon"}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        Sending.of(wrong)  # type: ignore[arg-type]
