"""A home that an earlier version wrote is opened, says what it said then, and its flows go on as that version would have."""

import tarfile
from pathlib import Path
from typing import Any

import orjson
import pytest

from faults.engine_shop import SparkFree
from golden import home_flows
from golden.make_home import go, told
from penstock.engine.run import loop
from penstock.log.open import open_log

GOLDEN = sorted((Path(__file__).parents[2] / "golden").glob("home-*.tar.xz"))
SQL = ("by_bucket", "sql", "sql.late")  # what only Spark can go on with: tests/spark/test_golden_home.py

CACHE = ("calls", "keys", "from cache")  # of lookups: they depend on what a process still remembers


@pytest.fixture(params=GOLDEN, ids=lambda path: path.name.removesuffix(".tar.xz"))
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(request.param) as tar:
        tar.extractall(tmp_path, filter="data")
    return tmp_path


def said(golden: Path, name: str) -> Any:
    return orjson.loads((golden / name).read_bytes())


def now(golden: Path) -> Any:
    return orjson.loads(orjson.dumps(told(golden / "home")))


def check(found: Any, expected: Any, without: tuple[str, ...] = ()) -> None:
    """Each view, topic, group and queue alone, so that a failure says which. The books may have more to say than they had then."""
    for kind, things in expected.items():
        for name in things.keys() - set(without):
            if kind == "fates":
                for step, fates in things[name].items():
                    kept = {fate: rows for fate, rows in fates.items() if fate not in CACHE}
                    books = {fate: rows for fate, rows in found[kind][name][step].items() if fate in kept}
                    assert books == kept, f"the books of flow {name}, step {step}"
            else:
                assert found[kind][name] == things[name], f"{kind} {name}"


def test_there_is_a_home_of_every_version() -> None:
    assert [path.name for path in GOLDEN] == ["home-0.1.0.tar.xz"]


def test_a_home_of_an_earlier_version_says_what_it_said_then(golden: Path) -> None:
    check(now(golden), said(golden, "told.json"))


def test_the_flows_of_an_earlier_version_go_on_with_their_state(golden: Path) -> None:
    home = golden / "home"
    home_flows.send_part(open_log(home), 1)
    for flow in (*home_flows.FLOWS, home_flows.ended, home_flows.torn):
        go(SparkFree(home), flow(), loop.drain)
    check(now(golden), said(golden, "after.json"), without=SQL)
