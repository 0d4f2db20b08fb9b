"""The engine on Spark: wherever an epoch runs, the same rows come out, and what fails there is said in one paragraph."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from faults.engine_shop import check, fill, last_decision, make_input, report, shop, topic_rows, view
from penstock import Flow, Schema, Tumbling, agg
from penstock.engine.execute.placement import InProcess, Placement
from penstock.engine.execute.resident.residents import ResidentTask, residents_of
from penstock.engine.execute.spark_tasks import AcrossTasks, OneTask
from penstock.engine.run import loop
from penstock.engine.run.driver import Driver
from penstock.engine.run.options import RunOptions
from penstock.engine.run.runtime import Runtime
from penstock.engine.run.service import serve
from penstock.errors import FailedRow, PenstockError
from penstock.log.port import TopicSpec
from penstock.log.producer import Producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLACES: dict[str, Callable[[Any], Placement]] = {
    "in process": lambda context: InProcess(),
    "one task": OneTask,
    "resident task": lambda context: ResidentTask(residents_of(context, True, print), OneTask(context)),
    "across tasks": lambda context: AcrossTasks(context, 2),
}


@dataclass
class Placed(Runtime):
    """A runtime on the tests' own session, that runs every epoch in one given place."""

    spark: "SparkSession | None" = None
    where: str = "one task"
    session: Any = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.session = self.spark

    def place(self, rows: int) -> Placement:
        return PLACES[self.where](self.session.sparkContext)

    def started(self, flow: Flow, buckets: int = 3) -> Driver:
        driver = self.driver(self.plan(flow), buckets)
        driver.start()
        return driver

    def drain(self, flow: Flow, rows: int | None = None, buckets: int = 3) -> Driver:
        driver = self.started(flow, buckets)
        try:
            loop.drain(driver, threading.Event(), lambda report: None, rows)
            driver.deliverer.settle()
        finally:
            driver.release()
        return driver


@pytest.mark.parametrize("where", PLACES)
def test_every_placement_gives_the_same_rows(where: str, tmp_path: Path, spark: "SparkSession") -> None:
    given = make_input()
    fill(tmp_path, given)
    runtime = Placed(tmp_path, spark=spark, where=where)
    runtime.drain(shop(), 80)
    runtime.drain(report())
    check(tmp_path, given)


def orders(home: Path, rows: list[dict[str, Any]], frame: int = 20) -> None:
    spec = TopicSpec("orders", 1, Schema.of("user string, amount long, at timestamp"), "at")
    with Producer(Runtime(home).log.create(spec), batch_rows=frame, linger="1 day") as producer:
        for row in rows:
            producer.send(row)


ROWS = [{"user": f"u{n % 4}", "amount": n, "at": f"2024-01-15T10:{n // 60:02d}:{n % 60:02d}Z"} for n in range(200)]


def stream(flow: Flow) -> Any:
    return flow.stream("orders", "user string, amount long, at timestamp", time="at", lateness="5 seconds")


def sql_flow() -> Flow:
    """Expressions that only Spark evaluates, before and after a window, and beside a step that needs none."""
    flow = Flow("sql")
    first = stream(flow).where("sha2(user, 256) <> sha2('u3', 256)", name="some")
    first = first.select(
        "amount", "at", who="upper(reverse(user))", half="amount / 2", kind="case when amount < 100 then 'a' else 'b' end"
    )
    sales = first.window(Tumbling("1 minute"), by=("who", "kind")).agg(total=agg.sum("half"), name="sales")
    sales.select("who", "kind", "window_start", text="format_number(total, 1)").view("texts", key=("who", "kind", "window_start"))
    stream(flow).window(Tumbling("1 minute"), by="user").agg(n=agg.count(), name="plain").view("plain")
    return flow


def sql_oracle() -> Counter[tuple[Any, ...]]:
    sums: Counter[tuple[Any, ...]] = Counter()
    for row in ROWS:
        if row["user"] != "u3":
            sums[row["user"][::-1].upper(), "a" if row["amount"] < 100 else "b", row["at"][11:16]] += row["amount"] / 2
    return Counter({(*key, f"{total:,.1f}"): 1 for key, total in sums.items()})


@pytest.mark.parametrize("where", ["one task", "across tasks"])
def test_expressions_that_only_spark_evaluates_run_before_and_after_a_window(
    where: str, tmp_path: Path, spark: "SparkSession"
) -> None:
    orders(tmp_path, ROWS)
    driver = Placed(tmp_path, spark=spark, where=where).drain(sql_flow(), 120)
    assert driver.program.segments == 4
    got = Counter((r["who"], r["kind"], f"{r['window_start']:%H:%M}", r["text"]) for r in view(tmp_path, "texts"))
    assert got == sql_oracle()
    assert sum(r["n"] for r in view(tmp_path, "plain")) == len(ROWS)
    fates = last_decision(tmp_path, "sql").fates
    assert fates["some"] == {"in": 200, "filtered": 50, "passed": 150}
    assert not list((tmp_path / "flows/sql/staged").glob("*carried*")), "what only the epochs needed is gone"


def killer(marker: Path) -> Callable[[pa.Table], pa.Table]:
    """A function whose process dies as by `kill -9`, the first time."""

    def function(rows: pa.Table) -> pa.Table:
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return rows

    return function


def mapped(function: Callable[[pa.Table], pa.Table], on_error: Any = "dead") -> Flow:
    flow = Flow("mapped")
    rows = stream(flow).map_arrow(function, "user string, amount long, at timestamp", name="mapped", on_error=on_error)
    rows.window(Tumbling("1 minute"), by="user").agg(n=agg.count(), total=agg.sum("amount"), name="sales").view("sales").to("out")
    return flow


def totals() -> Counter[tuple[Any, ...]]:
    sums: dict[tuple[str, str], list[int]] = {}
    for row in ROWS:
        kept = sums.setdefault((row["user"], row["at"][11:16]), [0, 0])
        kept[0] += 1
        kept[1] += row["amount"]
    return Counter((*key, *values) for key, values in sums.items())


def shown(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter((r["user"], f"{r['window_start']:%H:%M}", r["n"], r["total"]) for r in rows)


@pytest.mark.parametrize("where", ["one task", "across tasks"])
def test_a_python_worker_that_dies_in_the_middle_costs_no_row(where: str, tmp_path: Path, spark: "SparkSession") -> None:
    """Spark runs the task again, or the epoch is run again: nobody has to (G8)."""
    orders(tmp_path, ROWS)
    runtime, marker = Placed(tmp_path, spark=spark, where=where), tmp_path / "killed"
    runtime.drain(mapped(killer(marker)))
    assert marker.exists()
    assert shown(view(tmp_path, "sales")) == shown(topic_rows(runtime.log, "out")) == totals()


@pytest.mark.parametrize("where", ["one task", "across tasks"])
def test_an_error_in_a_users_function_comes_out_as_one_paragraph(where: str, tmp_path: Path, spark: "SparkSession") -> None:
    orders(tmp_path, ROWS)

    def fails(rows: pa.Table) -> pa.Table:
        raise ZeroDivisionError("nothing to divide by")

    with pytest.raises(FailedRow, match=r"fails on a row: .*fails: ZeroDivisionError: nothing to divide by") as failed:
        Placed(tmp_path, spark=spark, where=where).drain(mapped(fails, on_error="stop"))
    text = str(failed.value)
    assert 'step "mapped"' in text
    assert "test_engine_spark.py:" in text
    assert len(text.splitlines()) <= 4
    assert "Traceback" not in text


def test_an_expression_that_fails_in_spark_comes_out_as_one_paragraph(tmp_path: Path, spark: "SparkSession") -> None:
    orders(tmp_path, ROWS)
    flow = Flow("failing")
    stream(flow).select("at", n="assert_true(amount < 100)").view("out")
    with pytest.raises(PenstockError) as failed:
        Placed(tmp_path, spark=spark).drain(flow)
    assert len(str(failed.value).splitlines()) <= 4
    assert "at org.apache" not in str(failed.value)


class Silent:
    def say(self, text: str) -> None: ...

    def progress(self, tally: Any, report: Any) -> None: ...

    def wait(self, text: str) -> None: ...

    def close(self, tally: Any) -> None: ...


def test_flows_in_one_process_may_read_each_others_topics(tmp_path: Path, spark: "SparkSession") -> None:
    given = make_input()
    fill(tmp_path, given)
    first, second = serve([shop(), report()], RunOptions("catch_up", home=tmp_path, buckets=2), Silent())
    assert first.rows == sum(map(len, given.orders)) + len(given.payments)
    assert second.rows > 0
    serve([shop(), report()], RunOptions("drain", home=tmp_path), Silent())
    check(tmp_path, given)
    told = Told()
    serve([shop()], RunOptions("catch_up", home=tmp_path), told)
    assert any("was ended by --drain" in line and "penstock flow reopen shop" in line for line in told.lines)


class Told(Silent):
    """Remembers what was said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def counting(place: Path) -> Callable[[pa.Table], pa.Table]:
    """A function that leaves a file for each call, with the rows it got, and gives each row a random number."""

    def function(rows: pa.Table) -> pa.Table:
        import random
        import uuid

        (place / uuid.uuid4().hex).write_text(str(rows.num_rows))
        return rows.set_column(1, "amount", pa.array([random.randrange(10**9) for _ in range(rows.num_rows)], pa.int64()))

    return function


@pytest.mark.parametrize("where", ["one task", "across tasks"])
def test_every_step_is_evaluated_once_however_many_read_it(where: str, tmp_path: Path, spark: "SparkSession") -> None:
    (tmp_path / "calls").mkdir()
    orders(tmp_path, ROWS)
    runtime = Placed(tmp_path, spark=spark, where=where)
    runtime.drain(mapped(counting(tmp_path / "calls")), 100)
    assert sum(int(path.read_text()) for path in (tmp_path / "calls").iterdir()) == len(ROWS)
    assert shown(view(tmp_path, "sales")) == shown(topic_rows(runtime.log, "out")), "a random column: both have the same draw"


def failing_once(marker: Path, inner: Callable[[pa.Table], pa.Table]) -> Callable[[pa.Table], pa.Table]:
    def function(rows: pa.Table) -> pa.Table:
        out = inner(rows)
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return out

    return function


def test_a_recomputation_that_differs_leaves_no_torn_result(tmp_path: Path, spark: "SparkSession") -> None:
    """A random column, and a task that dies after it was computed: view, topic and books tell of one and the same draw."""
    (tmp_path / "calls").mkdir()
    orders(tmp_path, ROWS)
    runtime = Placed(tmp_path, spark=spark, where="across tasks")
    flow = mapped(failing_once(tmp_path / "killed", counting(tmp_path / "calls")))
    runtime.drain(flow, 100)
    assert shown(view(tmp_path, "sales")) == shown(topic_rows(runtime.log, "out"))
    assert sum(r["n"] for r in view(tmp_path, "sales")) == len(ROWS)
    assert last_decision(tmp_path, "mapped").fates["sales"]["on time"] == len(ROWS)
