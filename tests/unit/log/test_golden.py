"""Logs that were written by earlier versions are opened, read and written on."""

import shutil
from pathlib import Path

import orjson
import pytest

from golden.make_log import NOW, SECOND, orders, told
from penstock.core.time import FixedClock
from penstock.log.file.log import FileLog
from penstock.log.port import Appended, Sender
from penstock.storage.local import LocalStorage

GOLDEN = sorted((Path(__file__).parents[2] / "golden").glob("log-*"))


@pytest.fixture(params=GOLDEN, ids=lambda path: path.name)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of one of them."""
    shutil.copytree(request.param, tmp_path / "golden")
    return tmp_path / "golden"


def opened(golden: Path) -> FileLog:
    return FileLog(LocalStorage(golden / "log"), FixedClock(NOW + 100 * SECOND), segment_size=1_500)


def test_a_log_of_an_earlier_version_says_what_it_said_then(golden: Path) -> None:
    assert orjson.loads(orjson.dumps(told(opened(golden)))) == orjson.loads((golden / "told.json").read_bytes())


def test_a_log_of_an_earlier_version_is_written_on_and_knows_its_producers(golden: Path) -> None:
    topic = opened(golden).topic("orders")
    assert topic.append(0, orders([0, 1, 2]), sender=Sender("till", 0, 0)) == Appended(0, 3, True)
    before = topic.ends()[0].next
    assert topic.append(0, orders([200]), sender=Sender("till", 0, 6)) == Appended(before, 1, False)
    assert [row["id"] for chunk in opened(golden).topic("orders").read(0) for row in chunk.rows.to_pylist()][-1] == 200
