"""Starting a flow over and doing away with it: all that is its own goes, nothing else does, wherever it is cut short (G31)."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock import Flow, Tumbling, agg
from penstock.engine.diagnose.inspect import decisions_of
from penstock.engine.flows.removing import POINTS, What, carry_out, plan
from penstock.engine.run.lock import held_lock
from penstock.errors import Held, InUse, Mismatch
from penstock.log.groups.port import Source
from penstock.sinks import search, sqlite, tantivy
from penstock.views.directory import list_views
from penstock.views.indexes import list_indexes
from penstock.views.search import SearchIndex
from unit.engine.homes import ORDERS, Home

ROWS = [{"id": n, "amount": n % 3, "at": f"2024-01-15T10:{n:02d}:00"} for n in (1, 2, 9, 3, 20, 4)]


class Crash(Exception):
    pass


def shop(name: str = "shop", suffix: str = "") -> Flow:
    """Two views, a topic, late rows."""
    flow = Flow(name)
    orders = flow.stream("orders", ORDERS, time="at", lateness="1 minute")
    orders.where("amount > 0").to(f"big{suffix}")
    orders.window(Tumbling("5 minutes"), by="amount").agg(n=agg.count()).view(f"sales{suffix}")
    orders.view(f"all{suffix}", key="id")
    return flow


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    for row in ROWS:
        made.send("orders", row)
    made.run(shop())
    made.run(shop("other", "2"))
    return made


def content(home: Home) -> dict[str, Any]:
    """Everything that is not of flow shop, byte by byte where it does not change by being looked at."""
    files = {p: p.read_bytes() for p in (home.path / "flows" / "other").rglob("*") if p.is_file()}
    topics = {name: home.records(name) for name in ("orders", "big2", "other.late")}
    return {"files": files, "topics": topics, "views": [home.rows("sales2"), home.rows("all2")]}


def results(home: Home) -> dict[str, Any]:
    return {"all": home.rows("all"), "sales": home.rows("sales")} | {name: home.records(name) for name in ("big", "shop.late")}


def remove(home: Home, what: What = "reset", topics: bool = True, force: bool = False, fail: Any = None) -> None:
    carry_out(home.path, home.log, plan(home.path, home.log, "shop", what, topics), force, fail or (lambda point: None))


def crash_at(number: int, passed: list[str]) -> Callable[[str], None]:
    def fail(point: str) -> None:
        passed.append(point)
        if len(passed) == number:
            raise Crash(point)

    return fail


def test_a_flow_that_was_reset_starts_over_with_a_new_life_and_makes_the_same_again(home: Home) -> None:
    before, others = results(home), content(home)
    life = decisions_of(home.path, "shop").last()
    remove(home)
    assert list_views(home.path / "views") == ["all2", "sales2"]
    assert home.log.topics() == ["big2", "orders", "other.late"]
    assert [state.group for state in home.log.groups().describe()] == ["flow.other"]
    assert content(home) == others
    home.run(shop())
    assert results(home) == before
    last = decisions_of(home.path, "shop").last()
    assert last
    assert life
    assert last.incarnation != life.incarnation
    assert last.generation == 1


@pytest.mark.parametrize("what", ["reset", "drop"])
def test_wherever_it_is_cut_short_a_run_refuses_and_the_next_one_finishes(home: Home, what: What) -> None:  # G31
    before, others, number, passed = results(home), content(home), 0, list[str]()
    while True:
        number, passed = number + 1, []
        try:
            remove(home, what, fail=crash_at(number, passed))
            break
        except Crash:
            with pytest.raises(Mismatch, match=f"a {what} of it was begun and not finished") as refused:
                home.run(shop())
            assert f"penstock flow {what} shop --yes" in str(refused.value)
            assert content(home) == others
            remove(home, what)
        home.run(shop())
        assert results(home) == before
        assert content(home) == others
    assert set(POINTS) - {"removing.search"} == set(passed)
    assert (home.path / "flows" / "shop").exists() is (what == "reset")


def test_a_second_order_that_is_cut_short_forgets_nothing_of_the_first(home: Home) -> None:  # G31
    before, passed = results(home), list[str]()
    with pytest.raises(Crash):
        remove(home, fail=crash_at(5, passed))
    with pytest.raises(Crash):
        remove(home, "drop", topics=False, fail=crash_at(1, []))
    remove(home, "reset", topics=False)
    assert home.log.topics() == ["big2", "orders", "other.late"]
    home.run(shop())
    assert results(home) == before


def test_a_flow_that_runs_is_left_alone(home: Home) -> None:
    lock = held_lock(decisions_of(home.path, "shop"))
    with pytest.raises(Held, match="already running"):
        remove(home)
    lock.__exit__(None, None, None)
    assert results(home)["all"]


def test_what_others_read_goes_only_if_one_insists(home: Home) -> None:
    reader = Flow("reader")
    reader.stream("big", ORDERS).view("copied", key="id")
    home.run(reader)
    topic = home.log.topic("big")
    home.log.groups().put("audit", Source("big", topic.id, 1), {0: 0})
    with pytest.raises(InUse, match="others read what flow shop writes") as refused:
        remove(home)
    assert "topic big: flow reader, group audit" in str(refused.value)
    assert results(home)["big"]
    remove(home, force=True)
    home.run(shop())
    with pytest.raises(Mismatch, match="topic big was deleted and made again") as changed:
        home.run(reader)
    assert "penstock flow reset reader" in str(changed.value)


def test_topics_that_are_kept_stay_as_they_are_and_the_flow_must_write_others(home: Home) -> None:
    kept = home.records("big")
    remove(home, topics=False)
    assert home.log.topics() == ["big", "big2", "orders", "other.late"]
    with pytest.raises(Mismatch, match="topic 'big' belongs to another incarnation"):
        home.run(shop())
    remove(home, topics=False)
    home.run(shop(suffix="3"))
    assert (home.records("big"), home.records("big3")) == (kept, kept)


def test_a_dropped_flow_leaves_its_topics_unless_they_are_named(home: Home) -> None:
    remove(home, "drop", topics=False)
    assert home.log.topics() == ["big", "big2", "orders", "other.late"]
    assert os.listdir(home.path / "flows") == ["other"]


def test_a_damaged_flow_can_be_reset(home: Home) -> None:
    before = results(home)
    [newest] = sorted((home.path / "flows" / "shop" / "epochs").iterdir())[-1:]
    newest.write_bytes(b"noise")
    (home.path / "views" / "all.db").write_bytes(b"noise" * 1000)
    with pytest.raises(Exception, match="damaged") as refused:
        home.run(shop())
    assert "penstock flow reset" in str(refused.value)
    remove(home)
    home.run(shop())
    assert results(home) == before


def test_a_flow_over_another_log_is_not_reset_without_it(home: Home) -> None:
    decisions = decisions_of(home.path, "shop")
    decisions.generation(decisions.owner() | {"log": "kafka://broker:9092"})
    with pytest.raises(Mismatch, match="has its topics in another log") as refused:
        remove(home)
    assert "--log kafka://broker:9092" in str(refused.value)


# search indexes of the home


def indexed(name: str) -> Flow:
    flow = Flow(name)
    words = flow.stream("orders", ORDERS, time="at").select("id", text="'order'")
    words.sink(search(f"{name}_texts", key="id")).sink(tantivy(f"{name}_words", key="id"))
    return flow


def found(home: Home, name: str) -> list[list[int]]:
    indexes = [SearchIndex(f"{name}_{kind}", home.path) for kind in ("texts", "words")]
    ids = [sorted(index.find("order")["id"].to_pylist()) for index in indexes]
    for index in indexes:
        index.close()
    return ids


def test_indexes_go_with_their_flow_wherever_it_is_cut_short_and_no_others(home: Home) -> None:  # G31
    for name in ("shop2", "other2"):
        home.run(indexed(name))
    wanted, number, passed = [sorted(row["id"] for row in ROWS)] * 2, 0, list[str]()
    while True:
        number, passed = number + 1, []
        going = plan(home.path, home.log, "shop2", "reset", topics=True)
        assert [(thing.kind, thing.name) for thing in going.goes][1:-1] == [("search", "shop2_texts.db"), ("search", "shop2_words")]
        try:
            carry_out(home.path, home.log, going, fail=crash_at(number, passed))
            break
        except Crash:
            carry_out(home.path, home.log, plan(home.path, home.log, "shop2", "reset", topics=True))
        assert list_indexes(home.path) == ["other2_texts", "other2_words"]
        home.run(indexed("shop2"))
        assert found(home, "shop2") == wanted
        assert found(home, "other2") == wanted
    assert passed.count("removing.search") == 2


def test_an_index_that_cannot_be_opened_goes_with_the_flow_that_wrote_it(home: Home) -> None:
    home.run(indexed("shop2"))
    (home.path / "search" / "shop2_texts.db").write_bytes(b"this is no database" * 100)
    (home.path / "search" / "stray.db").write_bytes(b"nobody knows")
    carry_out(home.path, home.log, plan(home.path, home.log, "shop2", "drop", topics=True))
    assert list_indexes(home.path) == ["stray"]


# stores outside the home


def with_store(home: Home) -> Flow:
    flow = Flow("stored")
    orders = flow.stream("orders", ORDERS, time="at")
    orders.sink(sqlite(home.path.parent / "shop.db", "orders"))
    return flow


def in_store(home: Home) -> list[int]:
    with closing(sqlite3.connect(home.path.parent / "shop.db")) as connection:
        return sorted(id for (id,) in connection.execute("select id from orders"))


def test_a_store_keeps_its_rows_and_refuses_the_next_life_until_it_is_emptied_as_both_say(home: Home) -> None:
    home.run(with_store(home))
    before = in_store(home)
    going = plan(home.path, home.log, "stored", "reset", topics=True)
    [store] = [thing for thing in going.stays if thing.kind == "store"]
    assert (store.name, before) == ("sqlite.orders", sorted(row["id"] for row in ROWS))
    carry_out(home.path, home.log, going)
    assert in_store(home) == before
    with pytest.raises(Mismatch, match="belongs to another incarnation") as refused:
        home.run(with_store(home))
    assert store.emptied in str(refused.value.hint)
    file, _, statements = store.emptied.removeprefix("in ").partition(": ")
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(statements)
    assert in_store(home) == []
    home.run(with_store(home))
    assert in_store(home) == before
