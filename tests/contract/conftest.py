"""What the suites of brokers that have clocks of their own leave to the long run."""

import inspect

import pytest

from penstock.testing.queue_bench import QueueBench


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that let time pass depend on how busy the machine is, where the clock is the broker's: they are `long` there."""
    for item in items:
        suite = getattr(item, "cls", None)
        if suite and issubclass(suite, QueueBench) and "clocks" in suite.gaps and "advance(" in inspect.getsource(item.obj):
            item.add_marker(pytest.mark.long)
