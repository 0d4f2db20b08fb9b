"""What is told of a running capture: on a terminal, in a pipe, and that it fits a line."""

from dataclasses import replace

import pytest

from penstock.capture.definition import CaptureDefinition
from penstock.capture.port import SnapshotProgress, Status, Table
from penstock.capture.runner import Progress
from penstock.cli.cdc.telling import EVERY, LOUD, Teller, Telling, time_left
from penstock.cli.flow.show import fit
from penstock.cli.table import length

USERS: Table = ("public", "users")
ORDERS: Table = ("public", "orders")
SHOP = CaptureDefinition("shop", "postgres", "postgresql://db", (USERS, ORDERS))


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def copying(*copies: tuple[Table, int, int]) -> Progress:
    return Progress(status=Status(snapshots=[SnapshotProgress(*copy) for copy in copies]))


def test_a_stream_shows_speed_lag_and_what_the_database_keeps() -> None:
    progress = Progress(12_345, rate=1_203.4, status=Status(lag_bytes=1_500_000, kept_bytes=12 << 20, lag_seconds=0.31))
    line = Teller(SHOP).line(progress)
    assert line == "shop · 1,203 changes/s · lag 1.4 MiB, 0.3 s · log kept 12.0 MiB · 12,345 changes"


def test_without_lag_there_are_no_seconds_of_it_however_long_ago_the_last_change_was() -> None:
    progress = Progress(1, behind=7.0, status=Status(lag_bytes=0))
    assert Teller(SHOP).line(progress) == "shop · 0 changes/s · lag 0 B, 0.0 s · 1 changes"


def test_a_copy_shows_how_far_it_is_and_how_long_it_will_take() -> None:
    clock = Clock()
    teller = Teller(SHOP, clock)
    teller.line(copying((USERS, 0, 1_000), (ORDERS, 0, 50)))
    clock.now += 2
    line = teller.line(copying((USERS, 400, 1_000), (ORDERS, 0, 50)))
    assert line == "shop · copying public.users ▕████      ▏ 40% · 3 s left · 400 of about 1,000 rows · 1 more table · 200 rows/s"


def test_a_copy_of_unknown_size_shows_its_rows_alone() -> None:
    assert Teller(SHOP).line(copying((USERS, 400, 0))) == "shop · copying public.users · 400 rows · 0 rows/s"
    assert Teller(SHOP).line(copying((USERS, 400, 300))) == "shop · copying public.users · 400 rows · 0 rows/s"


@pytest.mark.parametrize("columns", [40, 80])
def test_a_line_fits_the_terminal_and_cuts_no_number(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    progress = Progress(12_345_678, rate=120_312.4, status=Status(lag_bytes=1_500_000_000, kept_bytes=12 << 40, lag_seconds=123.4))
    for each in (progress, copying((USERS, 123_456_789, 987_654_321))):
        whole = Teller(SHOP).line(each)
        shown = fit(whole)
        assert length(shown) < columns
        assert all(part in whole.split(" · ") for part in shown.removesuffix("…").strip(" ·").split(" · "))


def test_events_are_told_once() -> None:
    clock, said = Clock(), list[str]()
    teller = Teller(SHOP, clock)
    for progress in (
        copying((USERS, 5, 10), (ORDERS, 0, 5)),
        copying((USERS, 9, 10), (ORDERS, 0, 5)),
        copying((ORDERS, 1, 5)),
        replace(copying(), waiting="nobody answers"),
        replace(copying(), waiting="nobody answers"),
        copying((ORDERS, 2, 5)),
        Progress(),
        Progress(),
    ):
        said += teller.events(progress)
        clock.now += 3
    assert said == [
        "shop: following 2 tables",
        "shop: table public.users is copied",
        "shop waits, and tries again: nobody answers",
        "shop goes on after 6 s",
        "shop: table public.orders is copied",
    ]


def test_a_warning_is_loud_again_and_again_while_it_lasts() -> None:
    clock, grown = Clock(), Progress(status=Status(warning="the server keeps 12 MiB"))
    teller = Teller(SHOP, clock)
    teller.events(Progress())
    assert teller.events(grown) == ["shop: WARNING: the server keeps 12 MiB"]
    clock.now += LOUD / 2
    assert teller.events(grown) == []
    clock.now += LOUD
    assert len(teller.events(grown)) == 1
    teller.events(Progress())
    assert len(teller.events(grown)) == 1, "it is new again"


def test_in_a_pipe_a_line_comes_now_and_then_and_only_when_something_moved() -> None:
    clock = Clock()
    teller = Teller(SHOP, clock)
    assert not teller.due(Progress(5))
    clock.now += EVERY
    assert teller.due(Progress(5))
    clock.now += EVERY
    assert not teller.due(Progress(5))
    assert not teller.due(Progress(6, waiting="nobody answers"))
    assert teller.due(Progress(6))


def test_several_captures_have_a_line_each() -> None:
    other, shown = replace(SHOP, name="crm"), list[list[str]]()
    telling = Telling([SHOP, other], lambda text: None, lambda lines: shown.append(list(lines)))
    telling.report(SHOP, Progress(1))
    telling.report(other, Progress(2))
    telling.report(SHOP, Progress(3))
    assert [[line.split(" · ")[0] + line.split(" · ")[-1] for line in lines] for lines in shown] == [
        ["shop1 changes"],
        ["shop1 changes", "crm2 changes"],
        ["shop3 changes", "crm2 changes"],
    ]


def test_the_last_line_says_how_it_ended() -> None:
    assert Teller(SHOP).closing(Progress(1), 2.34, "caught up") == "shop: caught up · 1 change of 2 tables in 2.3 s"


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (59, "59 s"), (61, "1 min 01 s"), (3_720, "1 h 02 min")])
def test_times_are_short(seconds: float, text: str) -> None:
    assert time_left(seconds) == text
