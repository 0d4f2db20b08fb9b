"""Watermarks at rows and who is late."""

from datetime import timedelta

import numpy as np

from penstock.core.time import FOREVER, NEVER
from penstock.kernels.judging import judge_windows, late_for_instant, watermarks
from penstock.plan.layouts import Spaced

TEN = timedelta(microseconds=10)


def longs(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_a_row_is_judged_by_the_rows_before_it_and_not_by_itself() -> None:
    at, plausible, end = watermarks(longs(10, 5, 20, 7), 0, NEVER, FOREVER, 2)
    assert at.tolist() == [NEVER, 8, 8, 18]
    assert plausible.all()
    assert end == 18


def test_an_implausible_time_moves_nothing() -> None:
    at, plausible, end = watermarks(longs(10, 500, 11), longs(10, 10, 10), NEVER, 100, 0)
    assert plausible.tolist() == [True, False, True]
    assert at.tolist() == [NEVER, 10, 10]
    assert end == 11


def test_marks_stand_before_the_row_of_their_index_and_the_greatest_counts() -> None:
    at, _, end = watermarks(longs(1, 1, 1), 0, NEVER, FOREVER, 0, [(1, 50), (2, 30), (3, 60), (3, 55)])
    assert at.tolist() == [NEVER, 50, 50]
    assert end == 60


def test_the_watermark_carried_in_holds_until_something_greater_comes() -> None:
    at, _, end = watermarks(longs(1, 90), 0, 40, FOREVER, 10)
    assert at.tolist() == [40, 40]
    assert end == 80


def test_without_lateness_marks_alone_move_the_watermark() -> None:
    at, _, end = watermarks(longs(100, 200), 0, NEVER, FOREVER, None, [(1, 7)])
    assert at.tolist() == [NEVER, 7]
    assert end == 7


def test_no_rows_leave_the_watermark_where_marks_put_it() -> None:
    assert watermarks(longs(), 0, 3, FOREVER, 0).end == 3
    assert watermarks(longs(), 0, 3, FOREVER, 0, [(0, FOREVER)]).end == FOREVER


def test_windows_before_1970_start_below_their_rows() -> None:
    assert Spaced(TEN, TEN).panes(longs(-1, -10, -11, 0, 9, 10)).tolist() == [-10, -10, -20, 0, 0, 10]


def test_a_window_takes_a_row_while_its_end_is_beyond_the_watermark() -> None:
    verdicts = judge_windows(Spaced(TEN, TEN), longs(5, 5, 5), longs(9, 10, 11), "divert", 0)
    assert verdicts.late is not None
    assert verdicts.late.tolist() == [False, True, True]


def test_an_instant_takes_a_row_at_its_watermark() -> None:
    assert late_for_instant(longs(5, 5), longs(5, 6)).tolist() == [False, True]
