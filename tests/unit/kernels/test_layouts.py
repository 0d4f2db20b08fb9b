"""Where fixed windows lie."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.time import micros, moment
from penstock.plan.layouts import Calendar, Spaced

HOUR = 3_600_000_000


def longs(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@given(st.integers(-500, 500), st.integers(1, 30), st.integers(1, 30), st.integers(-20, 20))
def test_a_time_is_in_exactly_the_windows_that_hold_it(t: int, size: int, every: int, offset: int) -> None:
    layout = Spaced(*(timedelta(microseconds=us) for us in (size, every, offset)))
    expected = {s for s in range(t - size + 1, t + 1) if (s - offset) % every == 0}
    outside = layout.outside(longs(t))
    if outside is not None and outside[0]:
        assert not expected
        return
    _, starts = layout.windows(layout.panes(longs(t)))
    assert set(starts.tolist()) == expected
    assert layout.last_end(int(layout.panes(longs(t))[0])) == max(expected) + size


def local(text: str, zone: str) -> int:
    return micros(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)))


@pytest.mark.parametrize(
    ("unit", "zone", "at", "start", "end"),
    [
        ("day", "Europe/Berlin", "2024-03-31T12:00", "2024-03-31", "2024-04-01"),  # 23 hours
        ("day", "Europe/Berlin", "2024-10-27T02:30", "2024-10-27", "2024-10-28"),  # 25 hours
        ("day", "America/Sao_Paulo", "2018-11-04T01:00", "2018-11-04", "2018-11-05"),  # its midnight never came
        ("week", "Europe/Berlin", "2024-03-31T23:59", "2024-03-25", "2024-04-01"),
        ("month", "Asia/Tokyo", "2024-02-29T23:59", "2024-02-01", "2024-03-01"),
        ("month", "UTC", "1969-12-31T23:59", "1969-12-01", "1970-01-01"),
    ],
)
def test_calendar_windows_follow_the_clocks_of_their_zone(unit: str, zone: str, at: str, start: str, end: str) -> None:
    layout = Calendar(unit, zone)
    found = layout.panes(longs(local(at, zone)))
    assert found.tolist() == [local(start, zone)]
    assert layout.ends(found).tolist() == [local(end, zone)]
    assert layout.last_end(int(found[0])) == local(end, zone)


def test_days_in_which_clocks_change_have_23_or_25_hours() -> None:
    layout = Calendar("day", "Europe/Berlin")
    starts = layout.panes(longs(local("2024-03-31T12:00", "Europe/Berlin"), local("2024-10-27T12:00", "Europe/Berlin")))
    assert ((layout.ends(starts) - starts) // HOUR).tolist() == [23, 25]


@given(st.lists(st.integers(-(10**9), 2 * 10**9), min_size=1, max_size=20), st.sampled_from(["day", "week", "month"]))
def test_every_time_lies_between_start_and_end_of_its_calendar_window(seconds: list[int], unit: str) -> None:
    layout, times = Calendar(unit, "America/New_York"), longs(*(s * 1_000_000 for s in seconds))
    starts = layout.panes(times)
    assert ((starts <= times) & (times < layout.ends(starts))).all()
    for start in starts.tolist():
        there = moment(start).astimezone(ZoneInfo("America/New_York"))
        assert (there.hour, there.minute) == (0, 0)
        assert unit != "month" or there.day == 1
        assert unit != "week" or there.weekday() == 0


def test_times_of_many_years_cost_no_more_than_their_windows() -> None:
    layout = Calendar("day", "UTC")
    first, last = (micros(datetime(year, 1, 1, tzinfo=UTC)) for year in (2000, 2001))
    assert layout.panes(longs(first, last)).tolist() == [first, last]
    assert layout.ends(longs(first)).tolist() == [first + micros(timedelta(days=1))]
