"""Waiting in tests, for long enough where nothing is said."""

from collections.abc import Callable

from penstock.testing import waiting


def until(holds: Callable[[], bool], seconds: float = 120) -> bool:
    return waiting.until(holds, seconds)
