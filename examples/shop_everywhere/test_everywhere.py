"""The shop of the demo on the embedded log and on Kafka: what comes out is the same, and what plain Python says.

On Kafka and a cluster: tests/spark/test_cluster.py, which uses `produced` and `results` of this file."""

import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

import penstock.demo
from penstock.cli.main import run
from penstock.testing.servers.kafka_broker import KafkaBroker

HERE = Path(__file__).parent
VIEWS = ("sales_per_minute", "unpaid_orders", "late_orders", "takings")
OF_THE_LOG = ("offsets", "marks", "absent")  # a broker keeps its own notes among the records
LATE, BROKEN = {"o120", "o200"}, {"o077"}


def commands() -> list[list[str]]:
    """What the README tells its reader to type, on one machine."""
    first = (HERE / "README.md").read_text().split("```console\n")[1].split("```")[0]
    return [shlex.split(line.removeprefix("$ penstock ")) for line in first.splitlines()]


def produced() -> None:
    """The topics, in the log that PENSTOCK_LOG names."""
    for command in commands():
        if command[0] == "topic":
            assert run(command) == 0


def results(capsys: pytest.CaptureFixture[str]) -> dict[str, list[dict[str, Any]]]:
    """Every view and the books of both flows, as the command line shows them."""
    found = {}
    asked = [(name, ["view", "show", name]) for name in VIEWS] + [(f"fates {name}", ["fates", name]) for name in ("shop", "report")]
    for name, command in asked:
        capsys.readouterr()
        assert run([*command, "--output", "jsonl"]) == 0
        lines = [orjson.loads(line) for line in capsys.readouterr().out.splitlines()]
        found[name] = [{word: value for word, value in line.items() if word not in OF_THE_LOG} for line in lines]
    return found


def data(name: str) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (HERE / f"{name}.jsonl").read_bytes().splitlines()]


def check(found: dict[str, list[dict[str, Any]]]) -> None:
    """What plain Python makes of the same rows."""
    orders = [order for order in data("orders") if order["order_id"] not in LATE | BROKEN]
    paid = {payment["order_id"] for payment in data("payments")}
    sales = Counter((order["product"], order["at"][:16]) for order in orders)
    assert {(r["product"], r["window_start"][:16]): r["orders"] for r in found["sales_per_minute"]} == sales
    assert {r["order_id"] for r in found["unpaid_orders"]} == {order["order_id"] for order in orders} - paid
    assert {r["order_id"] for r in found["late_orders"]} == LATE
    assert sum(r["cents"] for r in found["takings"]) == sum(payment["paid"] for payment in data("payments"))
    assert all(line["balanced"] for flow in ("shop", "report") for line in found[f"fates {flow}"])


@pytest.mark.spark
def test_on_the_embedded_log_and_on_kafka_the_views_and_the_books_are_equal(
    tmp_path: Path, kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(HERE)
    found = []
    for place, url in (("embedded", ""), ("kafka", f"{kafka_broker.url}?prefix=everywhere.")):
        monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / place))
        monkeypatch.setenv("PENSTOCK_LOG", url)
        for command in commands():
            assert run(command) == 0, capsys.readouterr().err
        found.append(results(capsys))
    check(found[0])
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["shop", "report"])
def test_these_are_the_flows_of_the_demo(name: str) -> None:
    demo = Path(penstock.demo.__file__).parent / "flows" / f"{name}.py"
    assert (HERE / f"{name}.py").read_text() == demo.read_text()
