"""One Spark session for all tests of this directory; each is marked `spark`."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.engine.spark.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    session = start_session("penstock-tests", "local[2]", buckets=2)
    yield session
    session.stop()
