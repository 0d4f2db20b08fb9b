"""The demo's books: its flows over the file log without a JVM, computed again; and what tampering does to them."""

import contextlib
import shutil
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from penstock.cli.flow.load import load_flows
from penstock.core.time import FOREVER
from penstock.demo import engine as demo_engine
from penstock.demo.books import Books, Entry, close_books
from penstock.demo.shop import Customers
from penstock.demo.story import Outcome
from penstock.demo.topics import make_topics
from penstock.demo.verdict import as_json, print_verdict
from penstock.demo.watch import Watch
from penstock.engine.run.context import FlowContext
from penstock.engine.run.driver import Driver
from penstock.engine.run.loop import drain
from penstock.engine.run.outputs import targets
from penstock.flow.resolve import resolve
from penstock.flow.sql.analyzer import NoAnalyzer
from penstock.flow.topics import TopicFacts
from penstock.log.open import open_log
from penstock.log.producer import Producer
from penstock.sinks import view_file
from penstock.storage.local import LocalStorage

SECONDS = 240
FIRST = "WHERE product = 'tea' AND window_start = (SELECT min(window_start) FROM current)"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A home whose flows have come to their end, and the number of orders."""
    home = tmp_path_factory.mktemp("demo")
    make_topics(home)
    customers = Customers(100.0)
    orders, payments = (Producer(open_log(home).topic(name)) for name in ("orders", "payments"))
    for tick in range(1, SECONDS // 10 + 1):
        arrivals = customers.until(tick * 10.0)
        orders.send_lines(arrivals.orders)
        payments.send_lines(arrivals.payments)
    payments.send_lines(customers.rest().payments)
    for name in demo_engine.FLOWS:
        _run_to_the_end(home, Path(demo_engine.__file__).parent / "flows" / name)
    return home, customers.orders


def _run_to_the_end(home: Path, file: Path) -> None:
    (flow,) = load_flows([str(file)])
    log = open_log(home)
    facts = {name: log.topic(name).spec for name in log.topics()}
    known = {name: TopicFacts(spec.writer is not None, spec.time, spec.schema) for name, spec in facts.items()}
    storage = LocalStorage(str(home / "flows" / flow.name))
    driver = Driver(resolve(flow, NoAnalyzer(), known), FlowContext(log, storage, targets(log, storage, home / "views")))
    driver.start()
    drain(driver, threading.Event(), lambda report: None)
    driver.stop()


def change(home: Path, view: str, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(home / "views" / f"{view}.db")) as connection, connection:
        assert connection.execute(statement).rowcount == 1


@pytest.fixture
def tampered(finished: tuple[Path, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Books]:
    """Books over a copy of the home in which one row of one view was changed, as if a flow had written it so."""

    def books(view: str, statement: str) -> Books:
        monkeypatch.setattr(view_file, "has_checks", lambda connection: False)  # else its checksum would tell
        home = tmp_path / "home"
        shutil.copytree(finished[0], home)
        change(home, view, statement)
        return close_books(home, finished[1])

    return books


def test_books_of_an_honest_run_balance(finished: tuple[Path, int]) -> None:
    books = close_books(*finished)
    assert books.ok
    assert (books.lost, books.doubled) == (0, 0)
    assert books.produced == 24_000 == books.counted + books.late + books.dead
    assert min(books.late, books.dead, books.paid, books.unpaid) > 0
    assert all(entry.expected > 0 for entry in books.entries)


def test_an_order_that_the_log_lacks_is_lost(finished: tuple[Path, int]) -> None:
    books = close_books(finished[0], finished[1] + 1)
    assert not books.ok
    assert books.lost == 1


def test_a_row_missing_in_a_view_is_lost(tampered: Callable[[str, str], Books]) -> None:
    books = tampered("unpaid_orders", "DELETE FROM current WHERE order_id = (SELECT max(order_id) FROM current)")
    assert not books.ok
    assert (books.lost, books.doubled) == (1, 0)


def test_an_order_counted_twice_is_doubled(tampered: Callable[[str, str], Books]) -> None:
    books = tampered("sales_per_minute", f"UPDATE current SET orders = orders + 1 {FIRST}")
    assert not books.ok
    assert (books.lost, books.doubled) == (0, 1)


def test_a_wrong_sum_is_noticed_although_every_row_is_there(tampered: Callable[[str, str], Books]) -> None:
    books = tampered("takings", f"UPDATE current SET cents = cents - 1 {FIRST}")
    assert (books.lost, books.doubled) == (0, 0)
    assert not books.ok
    assert [entry.what for entry in books.sums if not entry.balanced] == ["takings, second flow"]


def test_one_lost_and_one_doubled_do_not_make_up_for_each_other() -> None:
    entry = Entry.of("orders", Counter({("a",): 1, ("b",): 1}), Counter({("a",): 2}))
    assert (entry.expected, entry.found, entry.lost, entry.doubled) == (2, 2, 1, 1)
    assert not entry.balanced


def test_watch_sees_what_the_views_and_decisions_say(finished: tuple[Path, int]) -> None:
    watch, books = Watch(finished[0]), close_books(*finished)
    sight = watch.look()
    watch.close()
    assert sum(window.orders.total() for window in sight.sales) == books.counted
    assert sum(window.orders.total() for window in sight.takings) == books.paid
    assert (sight.unpaid, sight.late, sight.dead) == (books.unpaid, books.late, books.dead)
    assert sight.epoch == sight.delivered >= 0
    assert sight.watermark == FOREVER


def test_watch_sees_nothing_where_nothing_is_yet(tmp_path: Path) -> None:
    sight = Watch(tmp_path).look()
    assert (sight.epoch, sight.delivered, sight.sales) == (-1, -1, [])


def test_verdict_for_scripts_is_one_json_object(finished: tuple[Path, int]) -> None:
    books = close_books(*finished)
    verdict = orjson.loads(as_json(books, Outcome(books.produced, 1, 2, 7.26)))
    assert verdict["verdict"] == "ok"
    assert verdict["first_result_seconds"] == 7.3
    assert (verdict["kills"], verdict["lost"], verdict["doubled"], verdict["unbalanced"]) == (2, 0, 0, [])
    failed = orjson.loads(
        as_json(replace(books, unbalanced=("shop, step orders: 2 rows in, 1 accounted for",)), Outcome(1, 1, 2, None))
    )
    assert failed["verdict"] == "failed"
    assert failed["unbalanced"] == ["shop, step orders: 2 rows in, 1 accounted for"]


def test_verdict_for_people_says_what_was_lost_and_doubled(finished: tuple[Path, int], capsys: pytest.CaptureFixture[str]) -> None:
    books = close_books(*finished)
    print_verdict(books, Outcome(books.produced, 1, 2, 7.0))
    out = capsys.readouterr().out
    assert "24,000 orders produced =" in out
    assert "killed 2 times in the middle of an epoch: 0 lost · 0 doubled" in out
