"""Clocks of devices set right from three times, and what is remembered of them."""

from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.core.columns import HASH
from penstock.core.time import FIRST, LAST
from penstock.kernels.clocks import DELAY, STEP, STEPS, Readings, Rule, correct, merged, recall

SPAN = 10 * STEPS  # a step of the span is 10
RULE = Rule(("device",), SPAN, future=1_000, past=5_000)


class Row(NamedTuple):
    device: Any
    happened: int
    sent: int | None
    received: int | None
    appended: int


def told(rows: list[Row], by: tuple[str, ...] = ("device",)) -> Readings:
    kind = pa.float64() if any(isinstance(r.device, float) for r in rows) else pa.string()
    devices = pa.table({name: pa.array([r.device for r in rows], kind) for name in by})
    known = np.array([r.sent is not None and r.received is not None for r in rows], bool)
    longs = [np.array([getattr(r, n) or 0 for r in rows], np.int64) for n in ("happened", "sent", "received", "appended")]
    happened, sent, received, appended = longs
    return Readings(devices, happened, sent, received, known, np.ones(len(rows), bool), appended)


def fixed(rows: list[Row], cuts: tuple[int, ...] = (), rule: Rule = RULE) -> list[tuple[int, int | None, bool]]:
    """(time, uncertainty, plausible) of each row, in one go or in several epochs."""
    out, runs = [], list[pa.Table]()
    for a, b in zip((0, *cuts), (*cuts, len(rows)), strict=True):
        said = told(rows[a:b])
        made = correct(rule, said, recall(runs, rule.by, said.devices))
        runs.append(made.state)
        if len(runs) == 3:
            runs = [merged(runs[:2], rule.by), runs[2]]
        unsure = [int(u) if sure else None for u, sure in zip(made.uncertainty, made.sure, strict=True)]
        out += list(zip(made.times.tolist(), unsure, made.plausible.tolist(), strict=True))
    return out


def reference(rows: list[Row], rule: Rule = RULE) -> list[tuple[int, int | None, bool]]:
    """The same, one row after the other."""
    step = max(1, rule.span // STEPS)
    seen: dict[Any, list[tuple[int, int]]] = defaultdict(list)  # (step of received, never going back; delay)
    out = []
    for r in rows:
        mine, own = seen[r.device], None
        if r.sent is not None and r.received is not None:
            alone = r.happened + r.received - r.sent
            if r.appended - rule.past <= alone <= r.appended + rule.future:
                own = r.received - r.sent
                mine.append((max([r.received // step, *(s for s, _ in mine)]), own))
        shown = [delay for s, delay in mine if s > mine[-1][0] - rule.span // step]
        time = r.happened + min(shown, default=0)
        plausible = r.appended - rule.past <= time <= r.appended + rule.future
        out.append((time, None if own is None else own - min(shown), plausible))
    return out


def test_a_clock_that_is_off_is_set_right_by_received_minus_sent() -> None:
    rows = [Row("d", 7_100, 7_200, 10_205, 10_205)]
    assert fixed(rows) == [(10_105, 0, True)]


def test_jitter_of_the_network_does_not_reorder_events() -> None:
    delays = [5, 90, 12, 300, 5]
    rows = [Row("d", 50 * n, 50 * n + 1, 50 * n + 1 + delay, 50 * n + 400) for n, delay in enumerate(delays)]
    times = [time for time, _, _ in fixed(rows)]
    assert times == [50 * n + 5 for n in range(5)]
    assert [u for _, u, _ in fixed(rows)] == [0, 85, 7, 295, 0]


def test_a_quicker_row_makes_the_estimate_better_from_there_on() -> None:
    rows = [Row("d", 0, 0, 50, 50), Row("d", 10, 10, 15, 50), Row("d", 20, 20, 70, 70)]
    assert fixed(rows) == [(50, 0, True), (15, 0, True), (25, 45, True)]


def test_what_lies_further_back_than_the_span_no_longer_counts() -> None:
    late = SPAN + 20
    rows = [Row("d", 0, 0, 3, 3), Row("d", late, late, late + 8, late + 8), Row("d", late, late, late + 9, late + 9)]
    assert fixed(rows) == [(3, 0, True), (late + 8, 0, True), (late + 8, 1, True)]


def test_devices_have_each_their_own_clock() -> None:
    rows = [Row("a", 0, 0, 700, 700), Row("b", 0, 0, 2, 700), Row("a", 10, 10, 711, 711), Row(None, 0, 0, 9, 720)]
    assert [time for time, _, _ in fixed(rows)] == [700, 2, 710, 9]


def test_without_sent_or_received_the_last_known_offset_is_taken() -> None:
    rows = [Row("d", 5, None, 9, 9), Row("d", 10, 10, 25, 25), Row("d", 20, 20, None, 40), Row("d", 30, None, None, 50)]
    assert fixed(rows) == [(5, None, True), (25, 0, True), (35, None, True), (45, None, True)]


def test_the_last_known_offset_is_known_however_long_the_device_was_silent() -> None:
    silent = 4 * SPAN
    rows = [Row("d", 10, 10, 25, 25), Row("d", silent, None, None, silent), Row("e", silent, silent, silent + 1, silent + 1)]
    for cuts in ((), (1,), (2,)):
        assert fixed(rows, cuts) == [(25, 0, True), (silent + 15, None, True), (silent + 1, 0, True)]


def test_a_time_far_beyond_or_before_the_append_time_is_implausible() -> None:
    rows = [Row("d", 9_001, None, None, 8_000), Row("d", 9_000, None, None, 8_000), Row("d", 2_999, None, None, 8_000)]
    assert [plausible for _, _, plausible in fixed(rows)] == [False, True, False]


def test_a_row_whose_three_times_cannot_be_right_teaches_nothing() -> None:
    good = [Row("d", 8_000, 8_000, 8_005, 8_005), Row("d", 8_100, 8_100, 8_110, 8_110)]
    nonsense = Row("d", 8_050, 8_050 + 10_000, 8_060, 8_060)
    assert fixed([good[0], nonsense, good[1]]) == [(8_005, 0, True), (8_055, None, True), (8_105, 5, True)]


@pytest.mark.parametrize("time", [-(2**63), FIRST - 1, LAST + 1, 2**63 - 1])
@pytest.mark.parametrize("which", ["happened", "sent", "received"])
def test_times_outside_the_calendar_overflow_nothing(which: str, time: int) -> None:
    good = Row("d", 8_000, 8_000, 8_005, 8_005)
    for rule in (RULE, Rule(("device",), SPAN, 2**61, 2**61)):
        (_, _, first), second = fixed([good._replace(**{which: time}), good], rule=rule)
        assert first is (which != "happened")
        assert second == (8_005, 0, True)


def test_a_device_is_remembered_by_a_number_for_each_step_of_the_span_at_most() -> None:
    rows = [Row("d", t, t, t + t // 100, t + t // 100) for t in range(3 * SPAN)]  # a clock that falls behind
    state = correct(RULE, told(rows), None).state
    assert 2 <= state.num_rows <= STEPS
    assert state.column_names == [HASH, "device", STEP, DELAY]


def test_many_columns_name_a_device_and_minus_zero_is_zero() -> None:
    rows = [Row(x, 0, 0, delay, 50) for x, delay in ((0.0, 5), (1.0, 9), (-0.0, 20))]
    rule = Rule(("site", "unit"), SPAN, 1_000, 5_000)
    first, rest = told(rows[:2], rule.by), told(rows[2:], rule.by)
    state = correct(rule, first, None).state
    assert correct(rule, rest, recall([state], rule.by, rest.devices)).times.tolist() == [5]


def test_nothing_told_changes_nothing() -> None:
    made = correct(RULE, told([]), None)
    assert (made.times.tolist(), made.state.num_rows) == ([], 0)


times = st.integers(0, 3 * SPAN)
rows_of = st.builds(Row, st.sampled_from(["a", "b", None]), times, st.none() | times, st.none() | times, st.integers(0, 6_000))


@given(st.lists(rows_of, max_size=40), st.lists(st.integers(0, 40), max_size=4), st.sampled_from([1, 7, 45, 600, 1_200]))
@example([Row("a", 0, 0, 0, 0), Row("a", 0, 1, 0, 0), Row("a", 0, 0, 0, 0)], [1, 2], 1)
def test_any_cut_gives_what_one_row_after_the_other_gives(rows: list[Row], cuts: list[int], span: int) -> None:
    rule = Rule(("device",), span, future=1_000, past=5_000)
    expected = reference(rows, rule)
    where = tuple(sorted(min(c, len(rows)) for c in cuts))
    assert fixed(rows, (), rule) == expected
    assert fixed(rows, where, rule) == expected
