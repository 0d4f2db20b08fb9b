"""penstock ingest as a command: a directory of JSON files into a topic, exactly once, in words when something is wrong."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.cli.main import run
from penstock.engine.datasource.run import as_error
from penstock.errors import BadRow, SparkFailed
from penstock.log.consumer import records
from penstock.log.open import open_log
from waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLICKS = """
COLUMNS = "user long, n long, at timestamp"

def stream(spark):
    return spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).json("incoming").where("n >= 0")
"""
WAIT = 240


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "clicks.py").write_text(CLICKS)
    (tmp_path / "incoming").mkdir()
    return tmp_path


def arrive(project: Path, name: str, numbers: range) -> None:
    rows = [{"user": n % 3, "n": n, "at": f"2024-01-15T10:00:{n % 60:02}Z"} for n in numbers]
    hidden = project / "incoming" / f".{name}"
    hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
    hidden.rename(project / "incoming" / name)


def command(*more: str) -> list[str]:
    said = ["ingest", "clicks.py", "--into", "clicks", "--checkpoint", "ckpt", "--key", "user", "--time", "at", "--partitions", "2"]
    return [sys.executable, "-c", "from penstock.cli.main import main; main()", *said, *more]


def environment(project: Path) -> dict[str, str]:
    return {**os.environ, "PENSTOCK_HOME": str(project / "home")}


def ingest(project: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command(*more), cwd=project, env=environment(project), capture_output=True, text=True, check=False, timeout=WAIT
    )


def numbers(project: Path) -> list[int]:
    return sorted(r.value["n"] for r in records(open_log(project / "home").topic("clicks")))  # type: ignore[index]


def test_files_are_ingested_once_however_often_it_runs(project: Path) -> None:
    arrive(project, "1.json", range(100))
    arrive(project, "2.json", range(100, 150))
    first = ingest(project, "--once", "--quiet")
    assert (first.returncode, first.stdout, first.stderr) == (0, "", "ingested 150 rows into clicks (2 batches)\n")
    assert open_log(project / "home").topic("clicks").spec.partitions == 2

    commits = sorted((p for p in (project / "ckpt" / "commits").iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
    commits[-1].unlink()  # as if killed after the topic had the batch and before Spark's note of it
    (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)
    arrive(project, "3.json", range(150, 160))
    again = ingest(project, "--once")
    assert again.returncode == 0, again.stderr
    assert again.stderr.splitlines()[-1] == "ingested 10 rows into clicks (1 batch)"
    assert f"home {project / 'home'}" in again.stderr
    assert numbers(project) == list(range(160))


@pytest.mark.long
def test_killed_and_stopped_while_it_runs_it_loses_and_doubles_nothing(project: Path) -> None:
    arrive(project, "1.json", range(50))
    running = subprocess.Popen(command(), cwd=project, env=environment(project), start_new_session=True, stderr=subprocess.PIPE)
    try:
        wait_for_rows(project, 50)
        for i in range(2, 6):
            arrive(project, f"{i}.json", range(i * 50 - 50, i * 50))
        wait_for_rows(project, 100)  # somewhere in the middle of the rest
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.communicate()

    arrive(project, "6.json", range(250, 260))
    running = subprocess.Popen(command(), cwd=project, env=environment(project), stderr=subprocess.PIPE, text=True)
    try:
        wait_for_rows(project, 260)
        running.send_signal(signal.SIGTERM)
        _, said = running.communicate(timeout=WAIT)
    finally:
        running.kill()
    assert running.returncode == 0
    assert said.splitlines()[-2] == "stopping"
    assert said.splitlines()[-1].startswith("ingested ")
    assert numbers(project) == list(range(260))


def wait_for_rows(project: Path, count: int) -> None:
    log = open_log(project / "home")

    def there() -> bool:
        return "clicks" in log.topics() and sum(e.next for e in log.topic("clicks").ends().values()) >= count

    assert until(there, WAIT), f"the topic never had {count} rows"


NO_STREAM = "def stream(spark):\n    return spark.range(3)\n"
NO_COLUMN = 'def stream(spark):\n    return spark.readStream.format("rate").load().selectExpr("nothing")\n'
NO_TIME = 'def stream(spark):\n    return spark.readStream.format("rate").load().selectExpr("value", "\'\' as at")\n'


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (NO_STREAM, "error: stream(spark) returned a DataFrame that is no stream\n  hint: begin it with spark.readStream; "),
        (NO_COLUMN, "error: clicks.py:2 failed: AnalysisException\n  [UNRESOLVED_COLUMN"),
        (NO_TIME, "error: the time column 'at' of topic clicks must be a timestamp\n  value long, at string\n"),
    ],
)
def test_refusals_come_out_as_one_paragraph(
    spark: "SparkSession",
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    source: str,
    said: str,
) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setenv("PENSTOCK_HOME", str(project / "home"))
    (project / "clicks.py").write_text(source)
    assert run(["ingest", "clicks.py", "--into", "clicks", "--checkpoint", "ckpt", "--time", "at", "--once", "--quiet"]) == 2
    told_to_people = capsys.readouterr().err
    assert told_to_people.startswith(said)
    assert "Traceback" not in told_to_people
    assert "\tat " not in told_to_people


@pytest.mark.parametrize(
    ("source", "code", "words"),
    [
        (None, 3, "there is no file nothing.py\n  hint: give the path of a Python file that defines stream(spark)"),
        ("def steam(spark): ...", 2, "nothing.py defines no function stream(spark)\n  hint: see `penstock ingest --help`"),
        ("def stream(", 2, "nothing.py:1 is not Python: '(' was never closed"),
        ("x = 1\ny = 1 / 0", 2, "nothing.py:2 failed: ZeroDivisionError\n  division by zero"),
    ],
)
def test_wrong_files_are_told_before_spark_starts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    source: str | None,
    code: int,
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    if source:
        (tmp_path / "nothing.py").write_text(source)
    assert run(["ingest", "nothing.py", "--into", "t", "--checkpoint", "c", "--once"]) == code
    assert words in capsys.readouterr().err


def test_help_shows_what_a_file_looks_like(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ingest", "--help"]) == 0
    said = capsys.readouterr().out
    assert "def stream(spark):" in said
    assert "penstock ingest clicks.py --into clicks --checkpoint ckpt --once" in said


def test_error_of_ours_is_found_in_a_long_trace() -> None:
    trace = (
        "Traceback …\n  File x\npenstock.errors.BadRow: topic t does not take a row\n  why\n  hint: mend it\n\n\tat org.apache.X"
    )
    error = as_error(trace)
    assert isinstance(error, BadRow)
    assert str(error) == "topic t does not take a row\n  why\n  hint: mend it"
    other = as_error("Job aborted\nValueError: bad thing\n\tat org.apache.X")
    assert isinstance(other, SparkFailed)
    assert str(other).startswith("the stream failed\n  ValueError: bad thing\n")
