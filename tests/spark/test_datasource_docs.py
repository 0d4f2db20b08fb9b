"""What docs/structured-streaming.md shows works as it stands there."""

import re
import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.log.open import open_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "structured-streaming.md"


def test_examples_of_the_page_run_in_order(spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    text = PAGE.read_text().replace('"ckpt"', repr(str(tmp_path / "ckpt")))  # Spark takes paths from where its JVM began
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    (tmp_path / "page.py").write_text("\n".join(blocks))
    runpy.run_path(str(tmp_path / "page.py"), {"spark": spark})
    assert open_log(tmp_path / "home").topics() == ["clicks", "few"]
