"""Static tables: files and rows that are there from the beginning, and notice when they change."""

import datetime as dt
import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Flow, FlowTest
from penstock.cli.flow.load import load_flows
from penstock.core.time import FIRST
from penstock.engine.source.spec import topic_of
from penstock.engine.source.static import FRAME
from penstock.errors import BadInput, BadRow, Mismatch, NotFound

Start = Callable[..., FlowTest]
COLUMNS = "country string, vat double, since date"
CSV = 'country,population,vat,since\nDE,83,0.19,1968-01-01\n"F\nR",68,0.2,\n\nIT,59,,1973-01-01\n'
DAY = dt.date(1968, 1, 1)
ROWS = [
    {"country": "DE", "vat": 0.19, "since": DAY},
    {"country": "F\nR", "vat": 0.2, "since": None},
    {"country": "IT", "vat": None, "since": dt.date(1973, 1, 1)},
]


def table(given: Any, columns: str = COLUMNS, key: Any = "country", name: str | None = "countries") -> Flow:
    flow = Flow("shop")
    flow.static(given, columns, key=key, name=name).view("vat")
    return flow


def rows(t: FlowTest) -> list[dict[str, Any]]:
    t.catch_up()
    return t.rows("vat")


def written(directory: Path, kind: str) -> Path:
    path = directory / f"countries.{kind}"
    if kind == "csv":
        path.write_text(CSV)
    elif kind == "parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    else:
        path.write_text('{"country": "DE", "vat": "0.19", "since": "1968-01-01", "more": 1}\n\n{"country": "F\\nR", "vat": 0.2}\n')
        path.write_text(path.read_text() + '{"country": "IT", "since": "1973-01-01"}')
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl", "ndjson", "json"])
def test_a_file_is_read_by_its_extension(flow_test: Start, tmp_path: Path, kind: str) -> None:
    t = flow_test(table(written(tmp_path, kind)))
    assert rows(t) == ROWS
    assert t.fates("countries") == {"in": 3, "dead": 0, "implausible": 0, "passed": 3}


def test_rows_written_in_the_flow_are_a_table(flow_test: Start) -> None:
    flow = Flow("shop")
    given = [{"id": 1, "x": "a", "price": Decimal("1.50")}, {"id": 2, "price": "2.25"}]
    flow.static(given, "id long, x string, price decimal(10,2)", key="id", name="prices").select("id", "price").view("vat")
    assert rows(flow_test(flow)) == [{"id": 1, "price": Decimal("1.50")}, {"id": 2, "price": Decimal("2.25")}]


def test_nothing_is_read_while_the_flow_is_described(tmp_path: Path) -> None:
    flow = table(tmp_path / "nowhere.csv")
    with flow.test() as t, pytest.raises(NotFound, match=r"there is no file .*nowhere\.csv"):
        t.epoch()


def test_a_relative_path_counts_from_the_flows_file_else_from_where_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flow_test: Start
) -> None:
    flows, elsewhere = tmp_path / "flows", tmp_path / "elsewhere"
    flows.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    flow = 'from penstock import Flow\nflow = Flow("shop")\nflow.static("c.csv", "country string", key="country").view("vat")\n'
    (flows / "shop.py").write_text(flow)
    (elsewhere / "c.csv").write_text("country\nhere\n")
    assert rows(flow_test(load_flows([str(flows / "shop.py")])[0])) == [{"country": "here"}]
    (flows / "c.csv").write_text("country\nbeside\n")
    assert rows(flow_test(load_flows([str(flows / "shop.py")])[0])) == [{"country": "beside"}]


def test_versions_are_valid_since_ever(flow_test: Start, tmp_path: Path) -> None:
    flow = Flow("shop")
    countries = flow.static(written(tmp_path, "csv"), COLUMNS, key="country")
    flow.stream("orders", "country string, at timestamp", time="at").enrich(countries, on="country").view("enriched")
    t = flow_test(flow)
    t.send("orders", {"country": "DE", "at": "0999-01-01T00:00:00Z"}, {"country": "XX", "at": "2024-01-01T00:00:00Z"})
    t.catch_up()
    assert sorted((row["country"], row["vat"]) for row in t.rows("enriched")) == [("DE", 0.19), ("XX", None)]
    spec = t.driver.program.sources["countries"]
    assert topic_of(spec, t.log).ends()[0].appended == FIRST


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no column 'country'"),
        ("land,vat,since\n", "has no column 'country'"),
        ("country,vat,since\nDE,x,\n", "line 2: column 'vat' wants double, found the text 'x'"),
        ('country,vat,since\n"D\nE",1,\nFR,1,soon\n', "line 4: column 'since' wants date"),
        ("country,vat,since\nDE,1\n", "line 2: 2 fields, and the header has 3"),
        ("country,vat,since\nDE,1,\n,2,\n", "line 3: column 'country' is null: the key of the table"),
        ("country,vat,since\nDE,1,\nFR,1,\nDE,2,\n", "line 4: country = 'DE' stands there already, in line 2: a key names one row"),
        ('country,vat,since\n"DE,1,\n', "is not what its name says"),
    ],
)
def test_a_bad_csv_is_refused_with_its_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "c.csv"
    path.write_text(text)
    with table(path).test() as t, pytest.raises(BadInput) as refused:
        t.epoch()
    assert str(path) in str(refused.value)
    assert message in str(refused.value)


def test_bad_json_lines_are_told_with_their_number_and_how_many_there_are(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text('{"country": "DE"}\n\nnonsense\n{"country": "FR", "vat": "x"}\n')
    with table(path).test() as t, pytest.raises(BadRow, match=r"c\.jsonl, line 3: not JSON") as refused:
        t.epoch()
    assert "and 1 more" in str(refused.value)


def test_a_bad_parquet_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.parquet"
    for content, columns, message in [
        ({"country": [1.5], "vat": [1.0]}, "country long, vat double", "column 'country' is double and cannot be read as long"),
        ({"country": ["a", None]}, "country string not null", "row 2: column 'country' is null, and must not be"),
        ({"other": ["a"]}, "country string", "has no column 'country'"),
    ]:
        pq.write_table(pa.table(content), path)
        with table(path, columns).test() as t, pytest.raises(BadInput, match=r"c\.parquet") as refused:
            t.epoch()
        assert message in str(refused.value)
    path.write_bytes(b"no such thing")
    with table(path).test() as t, pytest.raises(BadInput, match="is not what its name says"):
        t.epoch()


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.xlsx").write_bytes(b"x")
    with table(tmp_path / "c.xlsx").test() as t, pytest.raises(BadInput, match=r"cannot tell what .*c\.xlsx is"):
        t.epoch()


def test_a_bad_row_of_the_flow_is_told_by_its_number() -> None:
    with table([{"country": "DE"}, {"country": 5}]).test() as t, pytest.raises(BadRow, match="static table countries, row 2"):
        t.epoch()


def test_a_file_that_has_changed_stops_the_flow_and_the_old_content_lets_it_go_on(flow_test: Start, tmp_path: Path) -> None:
    path = written(tmp_path, "csv")
    t = flow_test(table(path))
    assert rows(t) == ROWS
    path.write_text(CSV + "ES,47,0.21,\n")
    t.restart()
    with pytest.raises(
        Mismatch, match=r"static table countries has changed since this flow read it: the file .*countries\.csv"
    ) as stop:
        t.epoch()
    assert "put the old content back" in str(stop.value)
    path.write_text(CSV)
    os.utime(path, (1, 1))
    t.restart()
    assert rows(t) == ROWS, "touched, and not changed"


def test_a_large_file_is_read_in_parts_under_a_budget(flow_test: Start, tmp_path: Path) -> None:
    path = tmp_path / "n.csv"
    count = FRAME * 2 + 5
    path.write_text("n\n" + "\n".join(map(str, range(count))) + "\n")
    t = flow_test(table(path, "n long", key="n"))
    assert t.epoch(cut=FRAME + 7)
    assert t.fates("countries")["in"] == FRAME + 7
    t.catch_up()
    assert t.fates("countries")["in"] == count


def test_a_topic_of_the_same_name_is_another_thing(flow_test: Start) -> None:
    flow = Flow("shop")
    flow.static([{"id": 1}], "id long", key="id", name="things").view("static")
    flow.stream("things", "word string", name="words").view("stream")
    t = flow_test(flow)
    t.send("things", {"word": "a"}, {"word": "b"})
    t.catch_up()
    assert t.rows("static") == [{"id": 1}]
    assert [row["word"] for row in t.rows("stream")] == ["a", "b"]


def test_ends_of_a_static_table_are_found_and_drained(flow_test: Start) -> None:
    t = flow_test(table([{"country": "DE"}]))
    t.end()
    assert t.rows("vat") == [{"country": "DE", "vat": None, "since": None}]
    with pytest.raises(NotFound, match="reads no topic 'countries'"):
        t.send("countries", {"country": "FR"})
