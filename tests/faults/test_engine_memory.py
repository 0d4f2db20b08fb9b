"""A driver without memory at any step of an epoch or of a delivery ends; the next start loses and doubles nothing (G8)."""

import threading
from pathlib import Path

import pytest

from faults.engine_shop import EPOCH_ROWS, SparkFree, check, drain, fill, make_input, shop
from faults.test_engine_kill import POINTS
from penstock.engine.run import loop, runtime

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("point", POINTS)
def test_a_driver_without_memory_ends_and_the_next_one_goes_on(point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, passed = make_input(), 0
    fill(tmp_path, given)

    def fail(reached: str) -> None:
        nonlocal passed
        passed += reached == point
        if reached == point and passed == 2:
            raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(runtime, "armed", lambda setting, flow: fail)
        made = SparkFree(tmp_path)
        driver = made.driver(made.plan(shop()))
        driver.start()
        with pytest.raises(MemoryError):
            loop.drain(driver, threading.Event(), lambda report: None, EPOCH_ROWS)
        driver.release()
    drain(tmp_path)
    check(tmp_path, given)
