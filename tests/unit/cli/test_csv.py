"""CSV: text that a spreadsheet would run as a formula is text, unless it is asked for as it is."""

import csv
import io
from pathlib import Path

import pyarrow as pa
import pytest

from penstock import Producer, Schema, TopicSpec, open_log
from penstock.cli.main import run
from penstock.cli.output import print_table

EVIL = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\tx", "\rx"]
SCHEMA = Schema.of("name string, n long, price decimal(5,2)")


def cells(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


@pytest.mark.parametrize("evil", EVIL)
def test_text_that_begins_like_a_formula_gets_an_apostrophe(evil: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_table(pa.table({"=name": [evil, "a=b", None], "n": [-1, 2, 3]}), "csv")
    assert cells(capsys.readouterr().out) == [["'=name", "n"], [f"'{evil}", "-1"], ["a=b", "2"], ["", "3"]]


@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize("raw", [[], ["--raw"]])
def test_topics_are_written_so_too_and_as_they_are_where_that_is_asked_for(
    typed: bool, raw: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    with Producer(open_log().create(TopicSpec("orders", schema=SCHEMA if typed else None))) as producer:
        producer.send({"name": "=1+1", "n": -1, "price": "-1.50"} if typed else b'{"name": "=1+1", "n": -1, "price": -1.5}')
    assert run(["topic", "consume", "orders", "--output", "csv", *raw]) == 0
    [_, row] = cells(capfd.readouterr().out)
    assert row[0] == ("=1+1" if raw else "'=1+1")
    assert row[1] == "-1"
    assert row[2].startswith("-1.5")
