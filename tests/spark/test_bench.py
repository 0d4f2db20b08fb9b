"""The benchmarks still run, compare both sides row by row, and say what they found. How fast they are is not tested."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


def ran(script: str, *how: str, document: Path) -> str:
    document.write_text(f"before\n<!-- {script} -->\nold\n<!-- /{script} -->\nafter\n")
    command = [sys.executable, str(BENCH / f"{script}.py"), "--quick", "--markdown", str(document), *how]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return document.read_text()


def test_log(tmp_path: Path) -> None:
    text = ran("log", "--rows", "4000", document=tmp_path / "out.md")
    assert text.startswith("before\n<!-- log -->\n**Append, 1,000 rows a batch")
    assert "| append, acknowledged" in text
    assert text.endswith("<!-- /log -->\nafter\n")


def test_views_with_checksums_and_without(tmp_path: Path) -> None:
    text = ran("views", "--rows", "500", document=tmp_path / "out.md")
    assert "| read all rows" in text


@pytest.mark.long
def test_places_in_a_log_and_its_cleaning(tmp_path: Path) -> None:
    text = ran("log_places", document=tmp_path / "out.md")
    for told in ("| 10 ", "| SQLite, WAL", "| a time", "| compaction", "| 1,000 "):
        assert told in text


@pytest.mark.long
@pytest.mark.timeout(900)
def test_windows_equal_those_of_structured_streaming(tmp_path: Path) -> None:
    text = ran("windows", "--rows", "100000", "--keys", "10", document=tmp_path / "out.md")
    assert "| 10 equal" in text
    assert "×**" in text


@pytest.mark.long
def test_other_windows_equal_those_of_structured_streaming(tmp_path: Path) -> None:
    text = ran("kinds", "--rows", "40000", "--kinds", "hopping", "sliding", document=tmp_path / "out.md")
    assert " equal |" in text.replace("  ", " ")
    assert "not offered" in text
    assert "One row in a hundred is late" in text


@pytest.mark.long
def test_epochs_over_large_state(tmp_path: Path) -> None:
    text = ran("state", "--rows", "200", document=tmp_path / "out.md")
    assert "| keys of a window | 20,000" in text
    assert "| rows of a join   | 20,000" in text


@pytest.mark.long
def test_joins_equal_those_of_structured_streaming(tmp_path: Path) -> None:
    text = ran("joins", "--rows", "20000", document=tmp_path / "out.md")
    assert " equal |" in text


@pytest.mark.long
def test_a_local_copy_and_lookups_give_the_same(tmp_path: Path) -> None:
    text = ran("lookup", "--rows", "2000", document=tmp_path / "out.md")
    assert "| local copy: enrich " in text
    assert "| lookup at a service, kept for a minute " in text
    assert text.count(" equal |") == 10


@pytest.mark.long
def test_small_epochs(tmp_path: Path) -> None:
    text = ran("epochs", "--rows", "6000", document=tmp_path / "out.md")
    assert "| Penstock, a task that stays" in text
    assert "| Penstock, a Spark job each" in text
    assert "| a task that stays, on a cluster of two workers" in text


@pytest.mark.long
def test_real_time_mode(tmp_path: Path) -> None:
    text = ran("real_time", document=tmp_path / "out.md")
    assert "| Spark, real-time mode (at least once) |" in text
    assert "| Penstock (exactly once) " in text


@pytest.mark.long
def test_a_run_without_input(tmp_path: Path) -> None:
    text = ran("idle", "--rows", "2", document=tmp_path / "out.md")
    assert "| share of a core |" in text


def test_what_each_part_costs_by_itself(tmp_path: Path) -> None:
    text = ran("sizes", "--rows", "2000", document=tmp_path / "out.md")
    assert "| window, 1,000 keys " in text
    assert "| as-of enrich, table of 100,000, into a topic " in text


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_cluster_gives_what_one_machine_gives(tmp_path: Path) -> None:
    text = ran("cluster", "--rows", "100000", document=tmp_path / "out.md")
    assert " equal |" in text
    assert "| an epoch of 1,000 events" in text


@pytest.mark.long
def test_starts_and_recovery(tmp_path: Path) -> None:
    text = ran("start", document=tmp_path / "out.md")
    assert "| every later start" in text
    assert "Recovery" in text


def test_document_without_a_place_for_a_script_is_refused() -> None:
    placed = runpy.run_path(str(BENCH / "report.py"))["placed"]
    with pytest.raises(SystemExit, match="no place for log"):
        placed("nothing here", "log", "text")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_kafka_beside_its_own_tools(tmp_path: Path) -> None:
    text = ran("kafka", "--rows", "3000", "--no-connector", document=tmp_path / "out.md")
    assert "| Kafka's own producer" in text
    assert "| read into Arrow, JSON into columns" in text


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_database_that_is_followed(tmp_path: Path) -> None:
    text = ran("cdc", "--rows", "2000", "--bulk", "5000", document=tmp_path / "out.md")
    assert "| one change a transaction: Penstock" in text
    assert "| in a view " in text
    assert "| write-ahead log, capture running " in text


@pytest.mark.long
@pytest.mark.timeout(900)
def test_stores_as_sinks(tmp_path: Path) -> None:
    text = ran("sinks", "--rows", "2000", document=tmp_path / "out.md")
    stores = (
        "PostgreSQL, upserts",
        "Valkey, hashes",
        "Valkey, JSON",
        "DuckDB",
        "Parquet",
        "Delta",
        "Iceberg",
        "FTS5",
        "tantivy",
        "OpenSearch",
    )
    for told in (*(f"| {store}" for store in stores), "**An epoch without rows**", "| webhook"):
        assert told in text
