"""Three stores follow a database while it is written to, and all of them are killed; then a cache that is lost is filled anew."""

import json
import runpy
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pytest

from contract.cdc_shop import own_server
from faults.engine_shop import SparkFree
from forked import Command, Forks
from penstock import SearchIndex
from penstock.cli.main import run
from penstock.engine.run import service
from penstock.testing.servers.postgres import PostgresServer
from penstock.testing.servers.valkey import ValkeyServer
from typed import own_database, type_all
from waiting import until

HERE = Path(__file__).parent
SHOP = runpy.run_path(str(HERE / "shop.py"))
KILLS = ("after_decide@2", "store.rows@3", "store.committed@2", "before_decide@3")
RUN = ("run", "flow.py", "--capture", "shop")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    yield from own_server(tmp_path_factory.mktemp("postgres"))


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[ValkeyServer]:
    with ValkeyServer(tmp_path / "cache") as cache:
        yield cache


@pytest.fixture
def copied(server: PostgresServer, cache: ValkeyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of this directory, with a home, a database and a cache of its own."""
    copy = tmp_path / "shop_sync"
    shutil.copytree(HERE, copy, ignore=shutil.ignore_patterns("__pycache__", ".penstock", "*.duckdb*"))
    monkeypatch.chdir(copy)
    monkeypatch.setenv("CACHE_URL", cache.url)
    monkeypatch.setattr(service, "Runtime", SparkFree)
    with own_database(server, "shop_sync", copy / ".penstock"):
        yield copy
        assert run(["cdc", "remove", "shop", "--yes"]) in (0, 3)  # 3: a test ended before it was added


def test_the_readme_says_what_happens(copied: Path) -> None:
    type_all(copied / "README.md")


def test_killed_while_four_sessions_write_every_store_is_equal_to_the_database(
    copied: Path, server: PostgresServer, cache: ValkeyServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked(server, (HERE / "shop.sql").read_text())
    assert run(["cdc", "add", "shop", database(server), "--tables", "customers,products,orders"]) == 0
    with Forks(tmp_path) as forks:
        with writing():
            for kill in KILLS:
                killed(forks.start(*RUN, PENSTOCK_FAIL=kill))
            flow = forks.start(*RUN)
            server.restart_at_once()
            cache.kill()
            cache.start()
        SHOP["work"](0)  # the flow goes on by itself
        assert until(lambda: held(cache) == wanted(server)), flow.said
        assert flow.interrupt() == 0, flow.said
    assert equal(capsys, "cdc", "reconcile", "shop") == [True] * 3
    assert equal(capsys, "sink", "reconcile", "flow.py") == [True] * 3

    cache.ask("FLUSHALL")
    assert run(["sink", "rebuild", "flow.py", "redis.product", "--yes", "--quiet"]) == 0
    assert held(cache) == wanted(server)
    assert equal(capsys, "sink", "reconcile", "flow.py") == [True] * 3


@contextmanager
def writing() -> Iterator[None]:
    """Sessions of the shop write, round by round."""
    enough = threading.Event()

    def rounds() -> None:
        for seed in count(1):
            SHOP["work"](seed)
            if enough.wait(0.5):
                return

    thread = threading.Thread(target=rounds)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()


def killed(flow: Command) -> None:
    """At the step that was asked for, whenever it comes."""
    assert flow.wait() == -9, flow.said


def database(server: PostgresServer) -> str:
    return server.url.rpartition("/")[0] + "/shop_sync"


def asked(server: PostgresServer, sql: str) -> list[tuple[Any, ...]]:
    import psycopg

    with psycopg.connect(database(server)) as connection:
        cursor = connection.execute(sql)
        return cursor.fetchall() if cursor.description else []


def wanted(server: PostgresServer) -> tuple[Any, ...]:
    """What each store should have, asked of the database."""
    products = asked(server, "select product_id, product, price from products order by 1")
    sales = asked(
        server,
        "select order_id, customer, product, quantity * price from orders join products using (product_id) "
        "join customers using (customer_id) order by 1",
    )
    return [(f"product:{number}", str(price)) for number, _, price in products], products, sales


def held(cache: ValkeyServer) -> tuple[Any, ...]:
    """What they have; nothing while the flow has the warehouse open."""
    keys = sorted((key.decode() for key in cache.ask("KEYS", "product:*")), key=lambda key: int(key.partition(":")[2]))
    with SearchIndex("products") as index:
        found = {
            (row["product_id"], row["product"], row["price"])
            for word in ("red", "blue", "light", "warm", "shoes", "coat", "scarf", "rainy", "running")
            for row in index.find(word, limit=100_000).to_pylist()
        }
    try:
        with duckdb.connect("warehouse.duckdb", read_only=True) as warehouse:
            sales = warehouse.execute("select order_id, customer, product, quantity * price from sales order by 1").fetchall()
    except duckdb.IOException:
        return ()
    return [(key, cache.ask("HGET", key, "price").decode()) for key in keys], sorted(found), sales


def equal(capsys: pytest.CaptureFixture[str], *words: str) -> list[bool]:
    capsys.readouterr()
    assert run([*words, "--quiet", "--output", "jsonl"]) == 0
    return [json.loads(line)["equal"] for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
