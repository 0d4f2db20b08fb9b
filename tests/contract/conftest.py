"""Tests that wait by the clock of a real broker; and databases that are followed."""

from collections.abc import Iterator

import pytest
from _pytest.runner import runtestprotocol
from tests.contract.rabbitmq_suite import passes_time

from capture_postgres import Follow, Followed
from penstock.testing.servers.postgres import PostgresServer

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


@pytest.fixture
def follow(postgres: PostgresServer) -> Iterator[Follow]:
    """Tables that are made, published and followed; their slots are dropped in the end."""
    made: list[Followed] = []

    def followed(ddl: str, *tables: str, flat: bool = False, partitions: int = 1) -> Followed:
        made.append(Followed(postgres, ddl, tables or ("t",), flat, partitions))
        return made[-1]

    yield followed
    for each in made:
        each.close()
