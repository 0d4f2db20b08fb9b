"""What is wrong with the arguments of a sink is said with the line of the user's program that gave them."""

import runpy
from pathlib import Path
from typing import Any

import pytest

from penstock import lookups, sinks
from penstock.cli.main import run
from penstock.errors import BadInput
from unit.engine.homes import ORDERS, Home

# Of each definition a call that is wrong, and what is said of it.
WRONG = {
    "call": ('call("page")', "cannot call 'page'"),
    "command": ('command("page --team fraud")', "a command is a list of words"),
    "delta": ('delta("")', "is no place for a Delta table"),
    "duckdb": ('duckdb(":memory:", "sales")', "a DuckDB in memory is gone"),
    "email": ('email("http://mail", sender="a@b.c", to="d@e.f", subject="s", body="t")', "SMTP"),
    "iceberg": ('iceberg("lake", "sales")', "is no name of an Iceberg table"),
    "mariadb": ('mariadb("mariadb://shop:hunter2@db/shop", "sales")', "has a password"),
    "mysql": ('mysql("mysql://shop@db/shop", "a.b.c")', "is no name of a table"),
    "opensearch": ('opensearch("http://search:9200", "Products")', "is no name of an index"),
    "parquet": ('parquet("lake", partition_by=["day", "day"])', "partition_by names a column twice"),
    "postgres": ('postgres("postgresql://shop:hunter2@db/shop", "sales")', "has a password"),
    "push": ('push(vapid="env:KEY", contact="ops")', "contact cannot be 'ops'"),
    "redis": ('redis("redis://cache", "user", ttl="soon")', "cannot read ttl 'soon'"),
    "search": ('search("products", words="german")', "words='german' is not known"),
    "sqlite": ('sqlite("shop.db", "shop.sales")', "is no name of a table in SQLite"),
    "tantivy": ('tantivy("red shoes")', "cannot name a search index"),
    "two_phase": ('two_phase([postgres("postgresql://a/shop", "sales")])', "needs two tables or more"),
    "webhook": ('webhook("ftp://hooks.example.com")', "URL"),
}


def test_every_definition_is_tried() -> None:
    assert {*WRONG} == {*sinks.__all__} - {"ParquetFiles", "Refused", "parquet_files", "read_parquet"}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_argument_is_said_with_file_and_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    wrong, said = WRONG[name]
    (tmp_path / "flows").mkdir()
    file = tmp_path / "flows" / "shop.py"
    file.write_text(f"from penstock.sinks import postgres, {name}\n\n\nwhere = {wrong}\n")
    with pytest.raises(BadInput, match=said) as refused:
        runpy.run_path(str(file))
    assert refused.value.detail[0] == "flows/shop.py:4"
    assert str(refused.value).count("shop.py:4") == 1
    assert "hunter2" not in str(refused.value)


def test_a_wrong_argument_of_a_part_is_said_with_the_line_of_the_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text(
        """from penstock.sinks import postgres, two_phase

both = two_phase([
    postgres("postgresql://a/shop", "sales"),
    postgres("postgresql://b/shop", "sales", on_conflict="replace"),
])
"""
    )
    with pytest.raises(BadInput, match="on_conflict='replace' is not known") as refused:
        runpy.run_path(str(tmp_path / "shop.py"))
    assert refused.value.detail == ("shop.py:5",)


def test_what_only_the_start_can_tell_is_said_with_the_line_of_the_sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    home = Home(tmp_path / "home")
    home.send("orders", {"id": 1, "amount": 1, "at": "2024-01-15T10:00:00"})
    (tmp_path / "shop.py").write_text(
        f"""from penstock import Flow
from penstock.sinks import parquet

flow = Flow("shop")
orders = flow.stream("orders", "{ORDERS}", time="at")
orders.sink(parquet("lake", partition_by="country"))
"""
    )
    flow = runpy.run_path(str(tmp_path / "shop.py"))["flow"]
    with pytest.raises(BadInput, match="partition_by names 'country', which is no column") as refused:
        home.run(flow)
    assert refused.value.detail == ("flow shop (shop.py:6)",)


def test_commands_show_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text('from penstock.sinks import redis\n\nredis("redis://cache", "")\n')
    assert run(["check", "shop.py"]) == 2
    assert "shop.py:3" in capsys.readouterr().err


def test_definitions_keep_their_names_and_their_help() -> None:
    assert sinks.postgres.__name__ == "postgres"
    assert "A table of a PostgreSQL" in str(sinks.postgres.__doc__)


@pytest.mark.parametrize("of", [sinks.postgres, lookups.postgres])
@pytest.mark.parametrize("url", ["host=db password=secret dbname=shop", "//shop:secret@db/shop", "db"])
def test_what_is_no_url_of_a_postgresql_is_refused_and_not_shown(of: Any, url: str) -> None:
    with pytest.raises(BadInput, match="begins with postgresql://") as refused:
        of(url, "sales")
    assert "secret" not in str(refused.value)
