"""Times and durations as users write them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.time import FIRST, FOREVER, LAST, NEVER, duration, instant, micros, moment, text
from penstock.errors import BadTime


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("10 seconds", timedelta(seconds=10)),
        ("1 minute", timedelta(minutes=1)),
        ("1 hour 30 minutes", timedelta(minutes=90)),
        ("1 hour and 30 minutes", timedelta(minutes=90)),
        ("250 ms", timedelta(milliseconds=250)),
        ("1.5 h", timedelta(minutes=90)),
        ("2 DAYS", timedelta(days=2)),
        ("3w", timedelta(weeks=3)),
        ("0 seconds", timedelta(0)),
        (timedelta(seconds=5), timedelta(seconds=5)),
    ],
)
def test_a_duration_is_read_as_people_write_it(written: str | timedelta, meant: timedelta) -> None:
    assert duration(written) == meant


@pytest.mark.parametrize(
    "written", ["", "ten seconds", "10", "10 parsecs", "-1 second", "10 seconds!", "1e3 s", "99999999999999 weeks"]
)
def test_what_is_no_duration_is_refused_with_an_example(written: str) -> None:
    with pytest.raises(BadTime) as refused:
        duration(written, "lateness")
    assert "lateness" in str(refused.value)


def test_a_negative_timedelta_is_refused() -> None:
    with pytest.raises(BadTime):
        duration(timedelta(seconds=-1))


def test_a_time_without_a_zone_is_utc() -> None:
    assert instant("2024-01-15T10:30:00") == datetime(2024, 1, 15, 10, 30, tzinfo=UTC)
    assert instant("2024-01-15T12:30:00+02:00") == instant("2024-01-15T10:30:00Z")
    assert instant(datetime(2024, 1, 15, 10, 30)) == instant("2024-01-15 10:30:00")
    assert instant(datetime(2024, 1, 15, 12, 30, tzinfo=timezone(timedelta(hours=2)))) == instant("2024-01-15T10:30:00Z")


def test_what_is_no_time_is_refused() -> None:
    with pytest.raises(BadTime, match="yesterday"):
        instant("yesterday")


@given(st.integers(FIRST, LAST))
def test_text_and_microseconds_are_the_same_time(us: int) -> None:
    assert micros(moment(us)) == us
    assert micros(instant(text(us))) == us
    assert text(us).endswith("Z")


def test_the_ends_of_time_have_names_and_leave_room_for_durations() -> None:
    assert (text(NEVER), text(FOREVER)) == ("-∞", "+∞")
    assert FOREVER + micros(timedelta.max) // 100 < 2**63
    assert NEVER - micros(timedelta.max) // 100 > -(2**63)
