"""Pytest fixtures that come with the package. Those of real servers are in servers/fixtures.py, and asked for."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from penstock.testing.driver import FlowTest


@pytest.fixture
def flow_test() -> "Iterator[Callable[..., FlowTest]]":
    """`t = flow_test(flow)`: the flow under test, cleaned up at the end."""
    with ExitStack() as stack:

        def start(flow: Any, **how: Any) -> "FlowTest":
            from penstock.testing.driver import FlowTest

            return stack.enter_context(FlowTest(flow, **how))

        yield start
