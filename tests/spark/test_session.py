"""The session: the same interpreter everywhere, settings passed through, quiet, and gone when its process is."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from penstock.engine.spark.archive import archive_path
from penstock.engine.spark.java import find_java
from penstock.engine.spark.scratch import scratch
from penstock.engine.spark.session import start_session
from waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STARTS = """
import psutil
from penstock.engine.spark.scratch import scratch
from penstock.engine.spark.session import start_session
told = []
given = {"spark.executor.heartbeatInterval": "7s", "spark.my.password": "canary"}
spark = start_session("child", "local[2]", given, on_progress=told.append)
count = spark.sparkContext.parallelize(range(4), 2).map(lambda n: (n % 2, n)).partitionBy(2).count()
print("count", count, flush=True)
print("beat", spark.sparkContext.getConf().get("spark.executor.heartbeatInterval"), flush=True)
print("secret", spark.sparkContext.getConf().get("spark.my.password"), flush=True)
print("told", "|".join(told), flush=True)
jvm = spark.sparkContext._gateway.proc.pid
print("hidden", "canary" not in str(psutil.Process(jvm).cmdline()), flush=True)
print("jvm", jvm, flush=True)
"""


def child(tmp_path: Path, script: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=120
    )


def test_workers_run_this_interpreter_with_one_thread_each(spark: "SparkSession") -> None:
    def describe(items: Iterable[int]) -> list[tuple[str, str | None]]:
        list(items)
        return [(sys.executable, os.environ.get("POLARS_MAX_THREADS"))]

    assert set(spark.sparkContext.parallelize(range(2), 2).mapPartitions(describe).collect()) == {(sys.executable, "1")}


def test_times_are_utc_whatever_the_machine_says(spark: "SparkSession") -> None:
    row = spark.sql("select cast(timestamp'2024-07-15 10:30:00' as string) as text, current_timezone() as zone").first()
    assert row is not None
    assert (row.text, row.zone) == ("2024-07-15 10:30:00", "UTC")


def test_buckets_are_not_merged_by_adaptive_execution(spark: "SparkSession") -> None:
    assert spark.conf.get("spark.sql.adaptive.enabled") == "false"
    assert spark.range(10).repartition("id").rdd.getNumPartitions() == 2


def test_second_session_shares_spark_and_not_its_sql_settings(spark: "SparkSession") -> None:
    other = start_session("other", conf={"spark.sql.shuffle.partitions": "5"})
    assert other.sparkContext is spark.sparkContext
    assert other.conf.get("spark.sql.shuffle.partitions") == "5"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_nothing_listens_beyond_this_machine(spark: "SparkSession") -> None:
    jvm = psutil.Process(spark.sparkContext._gateway.proc.pid)
    listening = [c.laddr.ip for c in jvm.net_connections("inet") if c.status == psutil.CONN_LISTEN]
    assert listening
    assert {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.1"}


@pytest.mark.parametrize("launch", ["own", "plain"])
def test_either_launch_works_prints_nothing_and_leaves_nothing(tmp_path: Path, launch: str) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    done = child(tmp_path, STARTS, PENSTOCK_LAUNCH=launch, TMPDIR=str(scratch))
    assert done.stderr == ""
    assert "count 4" in done.stdout
    assert "beat 7s" in done.stdout
    assert "secret canary" in done.stdout
    assert "hidden True" in done.stdout
    assert ("PySpark's way" in done.stdout) == (launch == "plain")
    assert done.returncode == 0
    assert [p.name for p in tmp_path.iterdir()] == ["tmp"]
    assert until(lambda: not list(scratch.glob("penstock-*")), 10)


@pytest.mark.long
def test_a_damaged_archive_costs_time_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    archive_path(find_java()).write_bytes(b"no classes in here" * 1000)
    done = child(tmp_path, STARTS)
    assert "count 4" in done.stdout
    assert done.stderr == ""


@pytest.mark.long
def test_own_launch_that_fails_falls_back_to_pyspark(tmp_path: Path) -> None:
    broken = "from penstock.engine.spark import launch\nlaunch._SUBMIT = 'no.such.Class'\nlaunch.PATIENCE = 20\n" + STARTS
    done = child(tmp_path, broken)
    assert "count 4" in done.stdout
    assert "our own launch failed" in done.stdout


def test_jvm_ends_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    waits = STARTS + "\nimport time\ntime.sleep(600)\n"
    parent = subprocess.Popen([sys.executable, "-c", waits], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    jvm = psutil.Process(next(int(line.split()[1]) for line in parent.stdout if line.startswith("jvm")))
    workers = jvm.children(recursive=True)
    assert workers
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    assert until(lambda: not jvm.is_running(), 20)
    assert until(lambda: not any(worker.is_running() for worker in workers), 20)


def test_given_settings_win_over_ours(spark: "SparkSession") -> None:
    session = start_session("shuffle", conf={"spark.sql.shuffle.partitions": "7"})
    assert session.conf.get("spark.sql.shuffle.partitions") == "7"


def test_what_java_leaves_lying_about_lies_where_it_is_swept(spark: "SparkSession") -> None:
    spark.range(100).selectExpr("sum(id)").collect()
    jvm = spark.sparkContext._gateway.proc.pid
    assert spark.sparkContext._jvm.System.getProperty("java.io.tmpdir") == str(scratch())
    assert not list(Path("/tmp").glob(f"hsperfdata_*/{jvm}"))
