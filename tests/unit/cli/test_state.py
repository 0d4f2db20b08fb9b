"""penstock state, as a user calls it: how much is kept, the rows, the files for other programs, and another number of buckets."""

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from faults.engine_shop import EPOCH_ROWS, Input, Order, SparkFree, check, drain, fill, last_decision, make_input, shop
from penstock.cli.main import run
from penstock.engine.diagnose.inspect import decisions_of
from penstock.engine.run import loop
from penstock.engine.run.lock import held_lock
from penstock.engine.state import runs as state
from penstock.engine.state.rebucket import rebucket_flow
from penstock.engine.state.runs import read_run
from penstock.storage.local import LocalStorage


class Crash(Exception):
    pass


@pytest.fixture(scope="module")
def given() -> Input:
    return make_input()


@pytest.fixture
def home(tmp_path: Path, given: Input, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shop has read everything, and its windows and joins are still open."""
    home = tmp_path / "home"
    monkeypatch.setenv("PENSTOCK_HOME", str(home))
    fill(home, given)
    runtime = SparkFree(home)
    driver = runtime.driver(runtime.plan(shop()), threaded=False)
    driver.start()
    loop.catch_up(driver, threading.Event(), lambda report: None, EPOCH_ROWS)
    driver.stop()
    return home


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def kept(home: Path, step: str, table: str) -> list[dict[str, Any]]:
    """The rows of all runs that count, as the last decision names them."""
    storage = LocalStorage(str(home / "flows" / "shop"))
    refs = [r for r in last_decision(home, "shop").state if (r.step, r.table) == (step, table)]
    return [row for ref in refs for row in read_run(storage, ref).to_pylist()]


# how much


def test_every_table_is_told_with_rows_files_bytes_runs_buckets_and_its_oldest_slot(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["state", "show", "--output", "jsonl"]) == 0
    shown = capsys.readouterr()
    told = {(line["step"], line["table"]): line for line in map(json.loads, shown.out.splitlines())}
    assert set(told) == {("sales", "open"), *(("settled", table) for table in ("left", "right", "waiting", "matched"))}
    left, state = told["settled", "left"], last_decision(home, "shop").state
    refs = [r for r in state if (r.step, r.table) == ("settled", "left")]
    assert (left["flow"], left["what"], left["key"]) == ("shop", "join", ["order_id"])
    assert (left["rows"], left["files"]) == (len(kept(home, "settled", "left")), len({r.file for r in refs}))
    assert left["bytes"] == sum((home / "flows/shop" / f).stat().st_size for f in {r.file for r in refs})
    assert (sum(left["runs"]), left["buckets"], left["oldest"]) == (len(refs), 2, "2024-01-15T10:00:00Z")
    assert told["sales", "open"]["what"] == "window"
    rows, files = (sum(line[name] for line in told.values()) for name in ("rows", "files"))
    assert f"shop: {rows:,} rows in {files:,} files, " in shown.err
    assert " KiB · 2 buckets, epoch " in shown.err


def test_one_step_is_chosen_by_its_name(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["shop", "--step", "sales"], ["shop", "sales"]):
        assert run(["state", "show", *arguments, "--output", "jsonl"]) == 0
        assert [(line["step"], line["table"]) for line in lines(capsys)] == [("sales", "open")]


def test_for_people_it_is_a_table(home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert run(["state", "show", "shop", "--step", "settled", "--output", "table"]) == 0
    told = capsys.readouterr().out
    (left,) = [line.split("  ") for line in told.splitlines() if " left " in line]
    assert [cell.strip() for cell in left if cell][:3] == ["settled", "join by order_id", "left"]
    assert left[-1].strip() == "2024-01-15T10:00:00Z"
    assert " KiB" in told


def test_what_is_not_there_ends_with_3_and_says_what_is(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["state", "show", "till"]) == 3
    assert "flows here: shop" in capsys.readouterr().err
    assert run(["state", "show", "shop", "--step", "sums"]) == 3
    assert "its steps with state: sales, settled" in capsys.readouterr().err
    assert run(["state", "show", "shop", "settled", "middle"]) == 3
    assert "its tables: left, matched, right, waiting" in capsys.readouterr().err
    assert run(["state", "path", "shop", "sums"]) == 3


def test_where_nothing_ran_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    assert run(["state", "show"]) == 0
    assert "no flow has decided anything here yet" in capsys.readouterr().err


# the rows


def test_rows_come_newest_first_with_time_and_position(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["state", "show", "shop", "settled", "left", "--limit", "7", "--output", "jsonl"]) == 0
    shown = capsys.readouterr()
    told = [json.loads(line) for line in shown.out.splitlines()]
    newest = sorted(kept(home, "settled", "left"), key=lambda row: row["__t"], reverse=True)[:7]
    assert [row["order_id"] for row in told] == [row["order_id"] for row in newest]
    assert set(told[0]) == {"slot", "order_id", "user", "amount", "at", "time", "position"}
    assert told[0]["time"] == told[0]["at"]
    assert told[0]["position"].startswith("orders/")
    assert "the newest 7" in shown.err


def test_one_key_opens_its_bucket_alone(
    home: Path, given: Input, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    monkeypatch.setattr("penstock.engine.state.report.read_run", lambda s, ref: (opened.append(ref.bucket), read_run(s, ref))[1])
    rows = {o.order_id: o for part in given.orders for o in part if isinstance(o, Order)}
    for row in kept(home, "settled", "left")[::9]:
        opened.clear()
        assert run(["state", "show", "shop", "settled", "left", "--key", f"order_id={row['order_id']}", "--output", "jsonl"]) == 0
        (found,) = lines(capsys)
        assert (found["user"], found["amount"]) == (rows[row["order_id"]].user, rows[row["order_id"]].amount)
        assert len(set(opened[1:])) == 1, "the first run is looked at for its columns"


def test_a_column_that_is_not_the_key_is_looked_for_everywhere(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["state", "show", "shop", "settled", "left", "--key", "user=u3", "--key", "amount=62", "--output", "jsonl"]) == 0
    expected = Counter(r["order_id"] for r in kept(home, "settled", "left") if (r["user"], r["amount"]) == ("u3", 62))
    assert Counter(row["order_id"] for row in lines(capsys)) == expected


def test_runs_of_a_window_are_brought_together(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["state", "show", "shop", "sales", "open", "--output", "jsonl"]) == 0
    told = lines(capsys)
    raw = kept(home, "sales", "open")
    assert len(told) == len({(row["user"], row["slot"]) for row in told}) < len(raw), "each key and window once"
    assert sum(row["__rows0_"] for row in told) == sum(row["__rows0_"] for row in raw)


def test_a_key_that_is_not_kept_is_no_error(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["state", "show", "shop", "settled", "left", "--key", "order_id=nobody", "--output", "jsonl"]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "no such row is kept" in shown.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["settled", "left", "--key", "nothing=1"], "table left keeps no column 'nothing'"),
        (["settled", "left", "--key", "amount=many"], "cannot read 'many' as long"),
        (["settled", "left", "--key", "order_id"], "write it like --key user_id=1"),
        (["settled", "--key", "order_id=o1"], "--key looks at the rows of a table"),
    ],
)
def test_a_key_that_cannot_be_ends_with_2(arguments: list[str], said: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["state", "show", "shop", *arguments]) == 2
    assert said in capsys.readouterr().err


# the files, for other programs


def test_duckdb_and_polars_read_the_rows_that_count(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["state", "path", "shop", "settled", "left", "--output", "jsonl"]) == 0
    runs = lines(capsys)
    frames = [pl.scan_ipc(r["file"]).slice(r["first"], r["rows"]) for r in runs]
    by_polars = pl.concat(frames).group_by("user").agg(pl.col("amount").sum()).collect()
    batches = [pa.ipc.open_file(pa.memory_map(r["file"])).get_batch(r["batch"]) for r in runs]
    orders = pa.Table.from_batches(batches)
    with duckdb.connect() as database:
        by_duckdb = database.sql("select user, sum(amount) from orders group by all").fetchall()
    expected: Counter[str] = Counter()
    for row in kept(home, "settled", "left"):
        expected[row["user"]] += row["amount"]
    assert dict(by_polars.iter_rows()) == dict(by_duckdb) == expected
    assert orders.num_rows == sum(r["rows"] for r in runs)


def test_paths_are_whole_and_each_stands_once(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["state", "path", "shop", "settled"]) == 0
    paths = capsys.readouterr().out.splitlines()
    assert len(paths) == len(set(paths)) > 4
    assert sum(pl.read_ipc(path).height for path in paths) >= len(kept(home, "settled", "left"))


def test_a_step_that_keeps_nothing_has_no_files(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drain(home)
    capsys.readouterr()
    assert run(["state", "path", "shop", "sales"]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "keeps nothing now" in shown.err


# damage


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
@pytest.mark.parametrize("arguments", [["show", "shop", "settled", "left"], ["path", "shop", "settled"]])
def test_a_damaged_file_is_named(damage: str, arguments: list[str], home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state.forget()
    ref = next(r for r in last_decision(home, "shop").state if r.table == "left")
    file = home / "flows" / "shop" / ref.file
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content if damage == "flip" else content[:100])
    if damage == "remove":
        file.unlink()
    assert run(["state", *arguments]) == 1
    assert f"the state file {ref.file} cannot be read" in capsys.readouterr().err


def test_a_file_that_is_gone_is_named_where_its_size_is_asked(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ref = last_decision(home, "shop").state[0]
    (home / "flows" / "shop" / ref.file).unlink()
    assert run(["state", "show"]) == 1
    assert ref.file in capsys.readouterr().err


# another number of buckets


def rows_by_table(home: Path) -> dict[tuple[str, str], Counter[str]]:
    places = {(r.step, r.table) for r in last_decision(home, "shop").state}
    return {place: Counter(str(row) for row in kept(home, *place)) for place in places}


@pytest.mark.parametrize("buckets", [1, 5])
def test_the_flow_goes_on_with_another_number_of_buckets(
    buckets: int, home: Path, given: Input, capsys: pytest.CaptureFixture[str]
) -> None:
    before, last = rows_by_table(home), last_decision(home, "shop")
    assert run(["state", "rebucket", "shop", str(buckets)]) == 0
    told = capsys.readouterr().err
    now = last_decision(home, "shop")
    assert (now.epoch, now.buckets, now.generation) == (last.epoch + 1, buckets, last.generation + 1)
    assert {r.bucket for r in now.state} == set(range(buckets))
    assert rows_by_table(home) == before
    assert f"settled: {sum(r.rows for r in last.state if r.step == 'settled')} rows from 2 buckets into {buckets}" in told
    assert run(["state", "show", "shop", "settled", "left", "--limit", "1"]) == 0, "what the steps are is still known"
    drain(home)
    check(home, given)
    assert last_decision(home, "shop").buckets == buckets


def test_the_same_number_changes_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = last_decision(home, "shop")
    assert run(["state", "rebucket", "shop", "2"]) == 0
    assert "has 2 buckets already" in capsys.readouterr().err
    assert last_decision(home, "shop") == before


@pytest.mark.parametrize(("point", "buckets"), [("after_cut", 2), ("after_decide", 3)])
def test_a_crash_leaves_the_old_state_or_the_new_one(point: str, buckets: int, home: Path, given: Input) -> None:
    def fail(reached: str) -> None:
        if reached == point:
            raise Crash

    before = rows_by_table(home)
    with pytest.raises(Crash):
        rebucket_flow(decisions_of(home, "shop"), 3, lambda text: None, fail)
    assert last_decision(home, "shop").buckets == buckets
    assert rows_by_table(home) == before
    drain(home)
    check(home, given)
    named = {file for epoch in decisions_of(home, "shop").epochs() for file in decisions_of(home, "shop").read(epoch).files()}
    there = {str(p.relative_to(home / "flows/shop")) for p in (home / "flows/shop/state").rglob("*.arrow")}
    assert there <= named, "what was cut and never decided is gone"


def test_a_flow_that_runs_is_left_alone_and_its_holder_named(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = last_decision(home, "shop")
    lock = held_lock(decisions_of(home, "shop"))
    try:
        assert run(["state", "rebucket", "shop", "3"]) == 1
    finally:
        lock.__exit__(None, None, None)
    told = capsys.readouterr().err
    assert "flow shop is already running" in told
    assert "held by process" in told
    assert last_decision(home, "shop") == before


def test_a_number_that_cannot_be_is_wrong_usage(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["state", "rebucket", "shop", "0"]) == 2
    assert "1<=x<=1024" in capsys.readouterr().err
    assert run(["state", "rebucket", "till", "2"]) == 3


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ([], "penstock state show shop settled left"),
        (["show"], "penstock state show shop settled left --key order_id=o17"),
        (["path"], "penstock state path shop settled left --output jsonl"),
        (["rebucket"], "penstock state rebucket shop 8"),
    ],
)
def test_the_help_teaches_with_an_example(command: list[str], shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["state", *command, "--help"]) == 0
    assert shown in capsys.readouterr().out
