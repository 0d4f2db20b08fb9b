"""Every window once, from a real Kafka in a real PostgreSQL, while the flow is killed and the database goes away."""

import json
import random
import signal
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from contract.cdc_shop import own_server
from faults.engine_shop import SparkFree
from forked import Forks
from penstock import Producer, open_log
from penstock.cli.main import run
from penstock.engine.run import service
from penstock.testing.servers.kafka_broker import KafkaBroker
from penstock.testing.servers.postgres import PostgresServer
from typed import type_all
from waiting import until

HERE = Path(__file__).parent
KILLS = ("after_run@2", "before_decide@2", "after_decide@2", "store.begun@2", "store.rows@2", "store.marker@1", "store.committed@2")
# The tables as Penstock would make them, and a line for every time that a row is written: a second time would be there to see.
COUNTED = """
drop table if exists written;
create table written (key text not null);
create table sales (user_id bigint, window_start timestamptz, window_end timestamptz, n bigint, total double precision,
    unique nulls not distinct (user_id, window_start));
create table late_orders (order_id text unique nulls not distinct, user_id bigint, amount double precision, at timestamptz);
create or replace function count_it() returns trigger language plpgsql as $$
begin insert into written values (concat(to_jsonb(new)->>tg_argv[0], to_jsonb(new)->>tg_argv[1])); return null; end $$;
create trigger counted after insert or update on sales for each row execute function count_it('user_id', 'window_start');
create trigger counted after insert or update on late_orders for each row execute function count_it('order_id', '');
"""
START, MINUTE, LATENESS = datetime(2024, 1, 15, 10, tzinfo=UTC), timedelta(minutes=1), timedelta(seconds=10)
Row = tuple[Any, ...]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    yield from own_server(tmp_path_factory.mktemp("postgres"))


@pytest.fixture
def settings(database: PostgresServer, kafka_broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home, topics and tables of the test's own."""
    database.execute("drop table if exists sales, late_orders, penstock_marker")
    monkeypatch.chdir(HERE)
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PENSTOCK_LOG", f"{kafka_broker.url}?prefix={tmp_path.name}.")
    monkeypatch.setenv("DATABASE_URL", database.url)


@pytest.mark.usefixtures("settings")
def test_the_readme_says_what_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "Runtime", SparkFree)
    type_all(HERE / "README.md")


class Orders:
    """What goes into the topic: mostly in the order of time, some of it too late."""

    def __init__(self) -> None:
        self.dice, self.sent = random.Random(18), 0

    def send(self, count: int) -> None:
        with Producer(open_log().topic("orders"), batch_rows=10) as producer:
            for number in range(self.sent, self.sent + count):
                behind = 200 if number % 20 == 19 else self.dice.randrange(9)
                at = START + timedelta(seconds=7 * number - behind)
                amount = self.dice.randrange(1, 200) / 2
                producer.send({"order_id": f"o{number}", "user_id": self.dice.randrange(5), "amount": amount, "at": at})
        self.sent += count


def told() -> tuple[list[Row], list[str]]:
    """What must come of the orders in Kafka, in plain Python: windows, and the orders that are too late for theirs."""
    windows, late = defaultdict[Row, list[float]](list), []
    for partition in open_log().topic("orders").ends():
        watermark = datetime.min.replace(tzinfo=UTC)
        for row in (row for chunk in open_log().topic("orders").read(partition) for row in chunk.rows.to_pylist()):
            start = row["at"].replace(second=0, microsecond=0)
            if start + MINUTE <= watermark:
                late.append(row["order_id"])
            else:
                windows[row["user_id"], start].append(row["amount"])
            watermark = max(watermark, row["at"] - LATENESS)
    return sorted((*key, len(amounts), sum(amounts)) for key, amounts in windows.items()), sorted(late)


def held(database: PostgresServer) -> tuple[list[Row], list[str]]:
    """What stands in the tables."""
    sales = database.execute("select user_id, window_start, n, total from sales order by 1, 2")
    return sales, [order for (order,) in database.execute("select order_id from late_orders order by 1")]


def test_killed_at_every_step_every_window_is_in_the_table_once(
    settings: None, database: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create = "topic create orders --partitions 2 --key user_id --time at --schema"
    assert run([*create.split(), "order_id string, user_id long, amount double, at timestamp"]) == 0
    database.execute(COUNTED)
    orders = Orders()
    with Forks(tmp_path) as forks:
        for kill in KILLS:
            orders.send(60)
            assert forks.run("run", "flow.py", "--catch-up", "--max-rows", "20", PENSTOCK_FAIL=kill) == -signal.SIGKILL, kill
        went_away(forks, orders, database)
        assert forks.run("run", "flow.py", "--drain") == 0
    assert held(database) == told()
    sales, late = held(database)
    assert database.execute("select count(*), count(distinct key) from written") == [(len(sales) + len(late),) * 2]
    capsys.readouterr()
    assert run(["sink", "reconcile", "flow.py", "--quiet"]) == 0
    assert [json.loads(line)["equal"] for line in capsys.readouterr().out.splitlines()] == [True, True]


def went_away(forks: Forks, orders: Orders, database: PostgresServer) -> None:
    """The database crashes under a running flow; then it is not there when the flow starts, which is killed meanwhile."""
    flow = forks.start("run", "flow.py")
    windows = lambda: len(held(database)[0])  # noqa: E731
    for _ in range(2):
        before = windows()
        orders.send(60)
        database.restart_at_once()
        assert until(lambda before=before: windows() > before), flow.said
    flow.kill()
    database.kill()
    flow = forks.start("run", "flow.py")
    orders.send(60)
    assert until(lambda: "sink postgres.sales waits since" in flow.said), flow.said
    flow.kill()
    flow = forks.start("run", "flow.py")
    database.start()
    before = windows()
    assert until(lambda: windows() > before), flow.said
    assert flow.interrupt() == 0, flow.said
