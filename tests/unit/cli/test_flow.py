"""penstock flow, as a user calls it."""

from pathlib import Path

import pytest

from penstock.engine.driver import taken
from penstock.engine.inspect import decisions_of
from unit.cli.calling import calls_of
from unit.engine.homes import Home
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
    lock = taken(decisions_of(home.path, "shop"))
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
    lock = taken(decisions_of(home.path, "shop"))
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
