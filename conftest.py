"""Which tests a normal run leaves to the long one."""

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that need a RabbitMQ: it has clocks of its own, and is slow where the machine is busy."""
    for item in items:
        if "rabbitmq_server" in getattr(item, "fixturenames", ()) or "[rabbitmq" in item.nodeid:
            item.add_marker(pytest.mark.long)
