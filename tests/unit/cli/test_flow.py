"""penstock flow, as a user calls it."""

import zlib
from dataclasses import asdict
from pathlib import Path

import orjson
import pytest

from penstock import Flow, Tumbling, agg
from penstock.engine.diagnose.inspect import decisions_of
from penstock.engine.run.lock import held_lock
from penstock.sinks import parquet, search, sqlite
from unit.cli.calling import calls_of
from unit.engine.homes import ORDERS, Home
from unit.engine.test_flow_removing import ROWS, Crash, crash_at, remove, shop

flow = calls_of("flow")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    made = Home(tmp_path)
    made.send("orders", *ROWS)
    return made


def test_every_flow_is_listed_with_its_state(home: Home) -> None:
    assert "no flow has run" in flow("list").err
    home.run(shop())
    home.run(shop("over", "2"), drain=True)
    new = home.driver(shop("new", "3"))
    new.start()
    new.release()
    lines = {line["flow"]: line for line in flow("list").rows}
    assert {name: line["state"] for name, line in lines.items()} == {"shop": "stopped", "over": "ended", "new": "never decided"}
    assert lines["shop"]["epochs"] == 1
    assert lines["shop"]["outputs"] == "topic big, view sales, view all"
    lock = held_lock(decisions_of(home.path, "shop"))
    running = next(line for line in flow("list").rows if line["flow"] == "shop")
    assert running["state"] == "running"
    assert running["by"].startswith("process ")
    lock.__exit__(None, None, None)
    with pytest.raises(Crash):
        remove(home, fail=crash_at(3, []))
    assert next(line for line in flow("list").rows if line["flow"] == "shop")["state"] == "half removed"


def test_a_flow_is_described_in_full(home: Home) -> None:
    home.run(shop())
    home.send("orders", ROWS[0])
    found = flow("describe", "shop").rows
    about = {kind: [line for line in found if line["about"] == kind] for kind in ("flow", "step", "input", "output", "book")}
    [facts] = about["flow"]
    assert (facts["state"], facts["epochs"], facts["log"]) == ("stopped", 1, "of the home")
    assert {"orders", "sales"} <= {line["step"] for line in about["step"]}
    [read] = about["input"]
    assert (read["topic"], read["next"], read["end"], read["behind"]) == ("orders", 6, 7, 1)
    assert {(line["kind"], line["name"]): line["rows"] for line in about["output"]}[("view", "all")] == 6
    assert all(line["balances"] for line in about["book"])
    assert flow("describe", "nobody").code == 3


def test_a_reset_shows_first_and_does_it_when_asked(home: Home) -> None:
    home.run(shop())
    asked = flow("reset", "shop")
    assert asked.code == 0
    assert {(line["kind"], line["name"]) for line in asked.rows if line["goes"]} == {
        ("state", "flows/shop"),
        ("view", "all"),
        ("view", "sales"),
        ("topic", "big"),
        ("late", "shop.late"),
        ("group", "flow.shop"),
    }
    assert {line["name"]: line["rows"] for line in asked.rows}["all"] == 6
    assert "nothing changed; --yes would reset flow shop" in asked.err
    assert home.rows("all")
    done = flow("reset", "shop", "--yes")
    assert (done.code, "starts over at its next run" in done.err) == (0, True)
    assert flow("list").rows[0]["state"] == "never decided"
    home.run(shop())
    assert len(home.rows("all")) == 6


def test_a_reset_and_a_drop_say_how_each_store_outside_is_emptied_and_take_the_indexes_of_the_home(home: Home) -> None:
    kept = Flow("kept")
    words = kept.stream("orders", ORDERS, time="at").select("id", text="'order'")
    words.sink(search("texts", key="id")).sink(sqlite(home.path / "shop.db", "words")).sink(parquet(home.path / "lake"))
    home.run(kept)
    asked = flow("reset", "kept")
    assert {(line["kind"], line["name"]): line["goes"] for line in asked.rows if line["kind"] in ("search", "store")} == {
        ("search", "texts.db"): True,
        ("store", "sqlite.words"): False,
        ("store", "parquet.lake"): False,
    }
    ways = [
        f"in {home.path}/shop.db: DELETE FROM words; DELETE FROM penstock_marker WHERE flow = 'kept' AND sink = 'words'",
        f"remove the directory {home.path}/lake",
    ]
    over = "keeps the rows of the life that is over, and refuses the next one until it is empty"
    assert [line for line in asked.err.splitlines() if line.startswith("sink ")] == [
        f"sink sqlite.words {over}: {ways[0]}",
        f"sink parquet.lake {over}: {ways[1]}",
    ]
    gone = flow("drop", "kept", "--yes")
    assert f"sink sqlite.words keeps its rows; to be rid of them: {ways[0]}" in gone.err
    assert (home.path / "shop.db").exists()
    assert not (home.path / "search" / "texts.db").exists()


def test_a_drop_leaves_topics_for_others_unless_they_are_named(home: Home) -> None:
    home.run(shop())
    asked = flow("drop", "shop")
    assert [line["name"] for line in asked.rows if not line["goes"]] == ["big"]
    assert flow("drop", "shop", "--topics", "--yes").code == 0
    assert home.log.topics() == ["orders"]
    assert flow("drop", "shop").code == 3
    assert flow("list").out == ""


def test_a_flow_that_runs_is_not_reset(home: Home) -> None:
    home.run(shop())
    lock = held_lock(decisions_of(home.path, "shop"))
    refused = flow("reset", "shop", "--yes")
    lock.__exit__(None, None, None)
    assert refused.code == 1
    assert "already running" in refused.err


def test_a_table_shows_it_to_people(home: Home) -> None:
    home.run(shop())
    shown = flow("describe", "shop", "--output", "table").out
    assert "inputs" in shown
    assert "orders" in shown
    assert flow("list", "--output", "table").code == 0
    assert flow("reset", "shop", "--output", "table").code == 0


def test_a_drained_flow_goes_on_when_it_is_reopened(home: Home) -> None:
    flow_ = counted()
    home.run(flow_, drain=True)
    asked = flow("reopen", "counts")
    assert asked.rows[0]["on_time_from"] == "2024-01-15T10:25:00Z"
    assert asked.rows[0]["because_of"] == "sales"
    assert "nothing changed" in asked.err
    assert flow("list").rows[0]["state"] == "ended"
    assert flow("reopen", "counts", "--yes").code == 0
    assert flow("list").rows[0]["state"] == "stopped"
    home.send("orders", {"id": 50, "amount": 1, "at": "2024-01-15T10:24:00"}, {"id": 51, "amount": 1, "at": "2024-01-15T10:26:00"})
    before = home.rows("sales")
    home.run(counted(), drain=True)
    [new] = [row for row in home.rows("sales") if row not in before]
    assert (new["n"], new["window_start"].minute, len(home.rows("sales"))) == (1, 25, len(before) + 1)
    assert flow("reopen", "nobody").code == 3


def test_a_flow_whose_topics_hold_the_end_is_reopened_only_if_one_insists(home: Home) -> None:
    home.run(shop(), drain=True)
    refused = flow("reopen", "shop", "--yes")
    assert refused.code == 1
    assert "topic big: nobody has read it yet" in refused.err
    assert "penstock flow reset shop" in refused.err
    assert flow("reopen", "shop", "--yes", "--force").code == 0


def test_a_flow_that_was_not_ended_is_not_reopened(home: Home) -> None:
    home.run(counted())
    refused = flow("reopen", "counts")
    assert refused.code == 2
    assert "was not ended" in refused.err


def test_a_flow_that_an_older_version_has_ended_is_reopened_once_it_was_run(home: Home) -> None:
    home.run(counted(), drain=True)
    epochs = home.path / "flows" / "counts" / "epochs"
    for path in epochs.iterdir():  # as 0.1.0 has written them
        found = decisions_of(home.path, "counts").read(int(path.name))
        raw = asdict(found)
        del raw["horizon"], raw["kind"]
        raw["marks"] = [list(mark)[:5] for mark in found.marks]
        body = orjson.dumps(raw, default=list, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SORT_KEYS)
        path.write_bytes(b"penstock decision 1 %08x\n" % zlib.crc32(body) + body + b"\n")
    refused = flow("reopen", "counts")
    assert (refused.code, "run it once" in refused.err) == (1, True)
    home.run(counted())
    assert flow("reopen", "counts", "--yes").rows[0]["on_time_from"] == "2024-01-15T10:25:00Z"


def counted() -> Flow:
    made = Flow("counts")
    orders = made.stream("orders", ORDERS, time="at", lateness="1 minute")
    orders.window(Tumbling("5 minutes"), by="amount").agg(n=agg.count(), name="sales").view("sales")
    return made
