"""A flow of an earlier version whose steps only Spark SQL evaluates goes on with its state."""

import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest

from golden import home_flows
from golden.make_home import go, told
from penstock.engine.run import loop
from penstock.engine.run.runtime import Runtime
from penstock.log.open import open_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("home-*.tar.xz"))


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_a_flow_of_an_earlier_version_goes_on_in_spark_sql(golden: Path, tmp_path: Path, spark: "SparkSession") -> None:
    with tarfile.open(golden) as tar:
        tar.extractall(tmp_path, filter="data")
    home = tmp_path / "home"
    home_flows.send_part(open_log(home), 1)
    go(Runtime(home), home_flows.sql(), loop.drain)
    after = orjson.loads((tmp_path / "after.json").read_bytes())
    assert told(home)["views"]["by_bucket"] == after["views"]["by_bucket"]
