"""Bugs planted in alerts over rows that change, and in what is told of them: each is caught within a few hundred cases."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from penstock.core.time import FOREVER
from penstock.kernels.alerts import told
from penstock.kernels.alerts.tables import BASE, AlertTableKernel
from penstock.kernels.alerts.told import TOLD, Teller, ToldKernel
from penstock.kernels.changes import SENT
from penstock.kernels.port import State, Stepped

from .over_kernels import OverKernels
from .test_planted_bugs import caught, silently


class ForgetsWhatIsSettled(AlertTableKernel):
    def step(self, state: State, rows: Sequence[pa.Table | None], frontiers: Sequence[int]) -> Stepped:
        return super().step(silently(state, BASE), rows, frontiers)


class ForgetsWhatItSent(AlertTableKernel):
    def step(self, state: State, rows: Sequence[pa.Table | None], frontiers: Sequence[int]) -> Stepped:
        return super().step(silently(state, SENT), rows, frontiers)


class SettlesAtOnce(AlertTableKernel):
    """Whether or not a row can still be corrected."""

    def __init__(self, alert: Any, *given: Any) -> None:
        super().__init__(replace(alert, settled=None if alert.settled is None else timedelta()), *given)


class SettlesWhatIsOpen(AlertTableKernel):
    def step(self, state: State, rows: Sequence[pa.Table | None], frontiers: Sequence[int]) -> Stepped:
        return super().step(state, rows, [FOREVER])


class KeepsTheNewestRun(AlertTableKernel):
    def merge(self, table: str, runs: Sequence[pa.Table]) -> pa.Table:
        return runs[-1]


class ForgetsWhatItTold(ToldKernel):
    def step(self, state: State, rows: Sequence[pa.Table | None], frontiers: Sequence[int]) -> Stepped:
        return super().step(silently(state, TOLD), rows, frontiers)


class TellsUnderTheTimeAlone(Teller):
    def after(self, *given: Any) -> Any:
        after, word = super().after(*given)
        return replace(after, at=given[0], number=0), word


class HearsNoEnd(Teller):
    """That something has ended is taken for nothing being said."""

    def after(self, t: int, says: str | None, since: int | None, every: int | None) -> Any:
        return super().after(t, None if says == "resolved" else says, since, every)


PLANTED: dict[str, tuple[str, OverKernels]] = {
    "what is settled is forgotten": ("alert-over-changing", OverKernels(alert_table=ForgetsWhatIsSettled)),
    "what was sent is forgotten": ("alert-over-changing", OverKernels(alert_table=ForgetsWhatItSent)),
    "a window settles before its corrections": ("alert-over-changing", OverKernels(alert_table=SettlesAtOnce)),
    "a session settles before its corrections": ("alert-over-sessions", OverKernels(alert_table=SettlesAtOnce)),
    "a window settles while it is open": ("alert-over-changing", OverKernels(alert_table=SettlesWhatIsOpen)),
    "merging keeps the newest run": ("alert-over-running", OverKernels(alert_table=KeepsTheNewestRun)),
    "what was told is forgotten": ("alert-over-running", OverKernels(told=ForgetsWhatItTold)),
}


RARE = {"a window settles before its corrections": 80}  # the seed behind which a case shows the bug


@pytest.mark.parametrize("bug", PLANTED)
def test_a_wrong_kernel_is_caught(bug: str) -> None:
    assert caught(*PLANTED[bug], first=RARE.get(bug, 0)), bug


@pytest.mark.parametrize("teller", [TellsUnderTheTimeAlone, HearsNoEnd])
def test_a_wrong_teller_is_caught(teller: type[Teller], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told, "Teller", teller)
    assert caught("alert-over-changing", OverKernels())
