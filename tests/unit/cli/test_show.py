"""The line of a run on a terminal."""

import pytest

from penstock.cli.flow.show import fit

LINE = "shop · epoch 1010 · 187,204 rows in 0.25 s (748,816 rows/s) · watermark 2024-01-15 10:02:10, held back by orders/0"


@pytest.mark.parametrize("width", range(20, 120))
def test_the_line_of_progress_leaves_out_whole_parts_and_never_cuts_a_number(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    shown = fit(LINE)
    assert len(shown) < width
    assert shown == LINE or set(shown.split(" · ")[:-1]) <= set(LINE.split(" · "))
    assert shown == LINE or shown.endswith(" · …")
