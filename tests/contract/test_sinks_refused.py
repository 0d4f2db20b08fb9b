"""Stores that refuse rows, or are restored from copies, and are repaired and rebuilt: letters and rows come once. (G37, G39)"""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from contract.test_sinks_in_step import ORDERS, Shop, agree
from faults.engine_shop import SparkFree
from penstock import Flow, Schema, TopicSpec
from penstock.engine.run.epoch.open import EpochRequest
from penstock.engine.run.letters import DEAD, letter_topic
from penstock.errors import Mismatch, SinkError
from penstock.sinks import sqlite
from penstock.sinks.stores.arguments import OnError
from penstock.sinks.stores.comparing import Compared

GUARDED = "create table guarded (id bigint primary key, user text, amount real check (amount <> 1.0), at text)"  # refuses order 7


class Guarded(Shop):
    """Orders in a table without a key, and small ones in a table that refuses some."""

    def __init__(self, home: Path, on_error: OnError = "dead") -> None:
        self.home, self.sent, self.said = home, 0, list[str]()
        self.log, self.guarded = home / "log.db", home / "guarded.db"
        self.runtime = SparkFree(home, say=self.said.append)
        self.runtime.log.create(TopicSpec("orders", 2, Schema.of(ORDERS), "at"))
        flow = Flow("shop")
        orders = flow.stream("orders", ORDERS, time="at", lateness="5 seconds", idle="1 hour")
        orders.sink(sqlite(self.log, "log"))
        orders.where("amount < 10").sink(sqlite(self.guarded, "guarded", key="id", on_error=on_error))
        self.plan = self.runtime.plan(flow)
        asked(self.guarded, GUARDED)

    def letters(self) -> int:
        name = letter_topic("shop", DEAD)
        return sum(end.next for end in self.runtime.log.topic(name).ends().values()) if name in self.runtime.log.topics() else 0

    def again(self, number: int) -> None:
        """An epoch with one order that was there before."""
        self.sent, sent = number, self.sent
        self.epochs(1, rows=1)
        self.sent = sent

    def idle(self, starts: int = 1) -> None:
        """Starts of the flow with orders that are too large for the table that refuses some."""
        for _ in range(starts):
            self.again(1_000)


def asked(file: Path, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file)) as connection, connection:
        return connection.execute(statement).fetchall()


@pytest.fixture
def shop(tmp_path: Path) -> Guarded:
    return Guarded(tmp_path / "home")


def test_a_refused_row_is_a_dead_letter_once_however_often_its_flow_starts(shop: Guarded) -> None:
    shop.epochs(1, rows=10)
    assert shop.letters() == 1
    shop.idle(starts=4)
    assert shop.letters() == 1
    shop.again(7)
    assert shop.letters() == 2


def test_a_repair_tells_of_no_refused_row_again(shop: Guarded) -> None:
    shop.epochs(2, rows=10)
    shop.again(7)
    shop.idle()
    before = shop.letters()
    asked(shop.guarded, "delete from guarded where id = 3")
    found = shop.check("sqlite.guarded").reconcile(repair=True)
    assert (found.written, found.refused) == (1, 1)
    shop.idle()
    assert shop.letters() == before


def taken_away(shop: Guarded) -> None:
    """Two epochs while the table that refuses some is away."""
    away = shop.home / "away.db"
    shutil.move(shop.guarded, away)
    shop.guarded.mkdir()
    driver = shop.driver()
    driver.start()
    for _ in range(2):
        shop.send(5)
        assert driver.epoch(EpochRequest())
    driver.stop()
    shop.guarded.rmdir()
    shutil.move(away, shop.guarded)


def test_what_a_rebuilt_store_refuses_for_the_first_time_is_a_dead_letter(shop: Guarded) -> None:
    shop.epochs(1, rows=5)
    taken_away(shop)
    assert shop.letters() == 0
    assert shop.check("sqlite.guarded").rebuild(agree).refused == 1
    assert shop.letters() == 1
    shop.idle(starts=2)
    assert shop.letters() == 1


def test_it_stops_a_rebuild_where_that_was_asked_for(tmp_path: Path) -> None:
    shop = Guarded(tmp_path / "home", "stop")
    shop.epochs(1, rows=5)
    taken_away(shop)
    with pytest.raises(SinkError, match="guarded"):
        shop.check("sqlite.guarded").rebuild(agree)
    assert len(asked(shop.guarded, "select id from guarded")) == 5


def restored(shop: Guarded) -> None:
    """The table without a key goes back to an older copy."""
    shop.epochs(2, rows=5)
    shutil.copy(shop.log, shop.home / "copy.db")
    shop.epochs(2, rows=5)
    shutil.copy(shop.home / "copy.db", shop.log)


def test_rows_that_the_flow_brings_while_a_rebuild_asks_are_not_added_twice(shop: Guarded) -> None:
    restored(shop)

    def agreed(compared: Compared) -> bool:
        shop.epochs(1, rows=5)
        return True

    shop.check("sqlite.log").rebuild(agreed)
    assert asked(shop.log, "select count(*), count(distinct id) from log") == [(shop.sent, shop.sent)]


def test_a_flow_that_is_reset_while_a_rebuild_asks_gets_nothing_of_its_earlier_life(shop: Guarded) -> None:
    restored(shop)

    def agreed(compared: Compared) -> bool:
        path = shop.home / "flows" / "shop" / "incarnation"
        path.write_text("0" * 32)
        return True

    with pytest.raises(Mismatch, match="flow shop was reset meanwhile"):
        shop.check("sqlite.log").rebuild(agreed)
    assert asked(shop.log, "select count(*) from log") == [(10,)]
