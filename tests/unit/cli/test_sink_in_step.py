"""penstock sink reconcile and rebuild: what is printed, exit codes, questions."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import orjson
import pytest

from penstock import Producer, Schema, TopicSpec
from penstock.engine.replay import instep
from penstock.log.open import open_log
from unit.cli.calling import Answer, calls_of
from unit.cli.looking import run_flow

ORDERS = TopicSpec("orders", 1, Schema.of("id long, user string, amount double, at timestamp"), "at")
FLOW = """
from penstock import Flow, agg
from penstock.sinks import sqlite

flow = Flow("shop")
orders = flow.stream("orders", "id long not null, user string not null, amount double, at timestamp", time="at")
spent = orders.group_by("user").agg(n=agg.count(), total=agg.sum("amount"))
spent.sink(sqlite("{file}", "spent"))
spent.view("spent")
orders.sink(sqlite("{file}", "orders"))
"""
MORE = """
from penstock.sinks import parquet, search
orders.sink(search("words", key="id", text="user"))
orders.sink(parquet("{lake}", key="id"))
orders.sink(sqlite("{file}", "words", key="id"))
"""


class Shop:
    def __init__(self, directory: Path, flow: str = FLOW) -> None:
        self.file, self.database = str(directory / "shop.py"), directory / "shop.db"
        self.index, self.lake = directory / "home" / "search" / "words.db", directory / "lake"
        Path(self.file).write_text(flow.format(file=self.database, lake=self.lake))
        home = directory / "home"
        topic = open_log(home).create(ORDERS)
        with Producer(topic) as producer:
            for n in range(30):
                producer.send({"id": n, "user": f"user-{n % 10}", "amount": n / 3, "at": f"2024-01-15T10:00:{n:02}Z"})
        run_flow(home, self.file)

    def execute(self, statement: str) -> None:
        with closing(sqlite3.connect(self.database)) as connection:
            connection.execute(statement)
            connection.commit()

    def call(self, *words: str) -> Answer:
        return calls_of("sink")(*words)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    return Shop(tmp_path)


@pytest.fixture
def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """Five stores."""
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    return Shop(tmp_path, FLOW + MORE)


def test_all_stores_of_a_flow_are_compared(shop: Shop) -> None:
    done = shop.call("reconcile", shop.file, "--output", "jsonl")
    found = [orjson.loads(line) for line in done.out.splitlines()]
    assert [(line["sink"], line["equal"], line["rows"]) for line in found] == [
        ("sqlite.spent", True, 10),
        ("sqlite.orders", True, 30),
    ]
    assert done.code == 0
    assert "sqlite.spent (table spent of" in done.err
    assert "equal, 10 rows against 10 of the log, 0 of 256 ranges differ" in done.err


def test_differences_are_named_and_end_with_4_until_they_are_put_right(shop: Shop) -> None:
    shop.execute("update spent set n = 99 where user = 'user-1'")
    shop.execute("delete from spent where user = 'user-2'")
    done = shop.call("reconcile", shop.file, "spent", "--quiet", "--output", "table")
    assert done.code == 4
    assert "sqlite.spent user-1 is different: n: log 3, store 99" in done.err
    assert "sqlite.spent user-2 is missing" in done.err
    assert "NOT EQUAL" in done.err
    assert shop.call("reconcile", shop.file, "spent", "--repair", "--quiet").code == 0
    done = shop.call("reconcile", shop.file, "spent", "--from-view", "spent", "--quiet")
    assert done.code == 0
    assert "10 rows against 10 of view spent" in done.err


def test_a_rebuild_asks_before_it_writes(shop: Shop) -> None:
    shop.execute("delete from spent")
    done = shop.call("rebuild", shop.file, "sqlite.spent", "--quiet")
    assert done.code == 2
    assert "10 rows are put in" in done.err
    assert "--yes does it without asking" in done.err
    done = shop.call("rebuild", shop.file, "sqlite.spent", "--yes")
    assert done.code == 0
    assert "10 rows written" in done.err
    assert shop.call("reconcile", shop.file, "--quiet").code == 0


def test_rows_without_a_key_that_are_too_many_are_told_and_stay(shop: Shop) -> None:
    shop.execute("insert into orders select * from orders where id < 2")
    done = shop.call("reconcile", shop.file, "orders", "--repair", "--quiet")
    assert done.code == 4
    assert orjson.loads(done.out)["extra"] == 2


def test_a_store_that_is_gone_is_told_at_once_when_nobody_runs_the_flow(many: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instep, "PATIENCE", 3600.0)
    many.index.unlink()
    done = many.call("reconcile", many.file, "--quiet")
    assert done.code == 1
    assert f"search index {many.index} has nothing of flow shop, and the flow is at 0" in done.err
    assert "penstock sink rebuild FLOW.py search.words" in done.err
    assert done.out.count('"equal":true') == 4, "the others are compared all the same"
    assert many.call("rebuild", many.file, "search.words", "--yes").code == 0
    assert many.call("reconcile", many.file, "--quiet").code == 0


def test_damaged_stores_are_told_and_filled_anew_once_they_are_removed(many: Shop) -> None:
    many.index.write_bytes(b"this is no database" * 100)
    (data,) = (many.lake / "data").iterdir()
    data.write_bytes(data.read_bytes()[:-1])
    done = many.call("reconcile", many.file, "--quiet")
    assert done.code == 1
    assert f"error: search index {many.index} is damaged" in done.err
    assert f"error: Parquet directory {many.lake} cannot be read: data/{data.name}" in done.err
    assert done.err.count("or remove it, and fill it anew: penstock sink rebuild") == 2
    assert done.out.count('"equal":true') == 3
    many.index.unlink()
    shutil.rmtree(many.lake)
    for sink in ("search.words", "parquet.lake"):
        assert many.call("rebuild", many.file, sink, "--yes").code == 0
    assert many.call("reconcile", many.file, "--quiet").code == 0


def test_a_damaged_file_of_tables_is_told(shop: Shop) -> None:
    shop.database.write_bytes(b"this is no database" * 100)
    done = shop.call("reconcile", shop.file, "--quiet")
    assert (done.code, done.out) == (1, "")
    assert done.err.count("is damaged: file is not a database") == 2


def test_eighty_columns_are_enough(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = shop.call("reconcile", shop.file, "--quiet", "--output", "table")
    assert max(map(len, done.out.splitlines())) <= 80
    assert "sqlite.spent" in done.out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("reconcile", "{file}", "other"), 3, "flow shop has no sink 'other'"),
        (("reconcile", "{file}", "view.spent"), 2, "view.spent is no store"),
        (("reconcile", "{file}", "words"), 2, "sinks of flow shop write words\n  hint: name one: search.words, sqlite.words"),
        (("reconcile", "{file}", "--from-view", "spent"), 2, "--from-view says what one sink should hold"),
        (("reconcile", "nowhere.py"), 3, "there is no file nowhere.py"),
        (("rebuild", "{file}", "other"), 3, "its sinks: sqlite.spent, view.spent, sqlite.orders"),
    ],
)
def test_what_cannot_be_is_said(words: tuple[str, ...], code: int, said: str, many: Shop) -> None:
    done = many.call(*(word.format(file=many.file) for word in words))
    assert (done.code, said in done.err) == (code, True), done.err


def test_a_flow_that_has_decided_nothing_is_told_so(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "other"))
    open_log(tmp_path / "other").create(
        TopicSpec("orders", 1, Schema.of("id long, user string, amount double, at timestamp"), "at")
    )
    done = shop.call("reconcile", shop.file)
    assert done.code == 3
    assert "flow shop has decided nothing yet" in done.err


TABLES = """
from penstock import Flow
from penstock.sinks import sqlite

flow = Flow("named")
orders = flow.table("orders", "id long not null, user long not null", key="id")
users = flow.table("users", "user long not null, name string", key="user")
orders.join(users, on="user").sink(sqlite("{file}", "named", key="id"))
"""


def test_a_join_of_tables_is_equal_however_its_changes_were_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    file = tmp_path / "named.py"
    file.write_text(TABLES.format(file=tmp_path / "shop.db"))
    orders, users = (open_log(tmp_path / "home").create(TopicSpec(name)) for name in ("orders", "users"))
    for name in ("ann", "bob", "carol"):  # an epoch each; run again they are one, with one change of each key
        with Producer(orders) as producer, Producer(users) as renames:
            producer.send(orjson.dumps({"id": 1, "user": 7}))
            renames.send(orjson.dumps({"user": 7, "name": name}))
        run_flow(tmp_path / "home", str(file))
    done = calls_of("sink")("reconcile", str(file), "--output", "jsonl")
    assert (done.code, [orjson.loads(line)["equal"] for line in done.out.splitlines()]) == (0, [True]), done.err
