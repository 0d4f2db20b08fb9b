"""Tests that wait by the clock of a real broker."""

import pytest
from _pytest.runner import runtestprotocol
from tests.contract.rabbitmq_suite import passes_time

SLOWER = (1, 4, 16)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """A machine that stood still lets a lease run out that ought to hold. So a test that fails is tried again with time that
    passes more slowly; what is wrong fails at any pace."""
    if not passes_time(item):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for item.slower in SLOWER:  # type: ignore[attr-defined]
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        if not any(report.failed for report in reports):
            break
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
