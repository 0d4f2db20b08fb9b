"""Contract suites over parts with bugs."""

import inspect
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.contracts.sink import Crash


def caught(suite: Any, directory: Path) -> list[str]:
    """Names of the tests of the suite that fail."""
    failed = []
    for name, test in inspect.getmembers(suite, inspect.ismethod):
        if name.startswith("test_"):
            try:
                test(directory / name)
            except pytest.skip.Exception:
                continue
            except (Exception, Crash, pytest.fail.Exception):
                failed.append(name)
    return failed
