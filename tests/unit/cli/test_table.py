"""Tables for people at every width: no number, time or key is cut, and what is left out is named."""

import random

import pyarrow as pa
import pytest

from penstock.cli.output import print_table
from penstock.cli.table import LEAST, Column, Writer, lay_out, length, shortened

WIDTHS = (20, 40, 60, 80, 110)


def random_columns(rng: random.Random) -> list[Column]:
    count, rows = rng.randint(1, 12), rng.randint(0, 4)
    keys = rng.randint(1, min(2, count))
    return [random_column(rng, f"{rng.choice(['n', 'long name of', 'a_b', 'ünï'])}_{i}", rows, i < keys) for i in range(count)]


def random_column(rng: random.Random, name: str, rows: int, key: bool) -> Column:
    if rng.random() < 0.5:
        return Column(name, [str(rng.randint(-(10 ** rng.randint(1, 18)), 10**9)) for _ in range(rows)], True, True, key)
    words = ["order-2024-000123", "ann", "日本語", '{"a":1010,"b":[1.5]}', "a text that is rather long and goes on"]
    return Column(name, [" ".join(rng.choices(words, k=rng.randint(0, 3))) for _ in range(rows)], key=key)


@pytest.mark.parametrize("width", WIDTHS)
def test_whatever_the_width_nothing_is_cut_but_text_and_what_is_left_out_is_named(width: int) -> None:
    rng = random.Random(width)
    for _ in range(300):
        columns = random_columns(rng)
        layout = lay_out(columns, width)
        if layout is None:  # printed a field a line
            continue
        assert {c.name for c in layout.columns} | set(layout.left_out) == {c.name for c in columns}
        assert all(c in layout.columns for c in columns if c.key)
        assert all(length(line) <= width for line in (*layout.header, *layout.rows))
        for column, wide in zip(layout.columns, layout.widths, strict=True):
            assert wide >= column.longest or (not column.whole and wide >= min(LEAST, column.longest))
        assert all(name in (layout.remark or "") for name in layout.left_out)


def test_a_key_that_is_text_is_broken_over_lines_and_stays_whole() -> None:
    key = Column("step", ["window-of-orders-by-user-and-country-and-shop"], key=True)
    layout = lay_out([key, Column("rows", ["1010"], right=True, whole=True)], 40)
    assert layout is not None
    lines = list(layout.rows)
    assert len(lines) == 2
    assert "1010" in lines[0]
    assert "".join(line[: 1 + layout.widths[0]].strip() for line in lines) == key.cells[0]


@pytest.mark.parametrize(
    ("text", "width", "cut"), [("total 187,204", 10, "total …"), ("1234567", 5, "…"), ("a9 bcdef", 5, "a9 b…")]
)
def test_a_text_is_never_cut_within_a_number(text: str, width: int, cut: str) -> None:
    assert shortened(text, width) == cut


def test_what_does_not_fit_at_all_is_printed_a_field_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    table = pa.table({"id": [10**18], "other": [-(10**18)], "n": [1010]})
    print_table(table, "table", keys=["id"])
    assert capsys.readouterr().out == "id     1000000000000000000\nother  -1000000000000000000\nn      1010\n"


def test_a_table_that_is_no_terminals_has_all_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    print_table(pa.table({f"column_{i}": [10**15 + i] for i in range(20)}), "table")
    shown = capsys.readouterr().out
    assert all(str(10**15 + i) in shown for i in range(20))


FLOATS = {
    4011.139999999999: "4011.14",
    0.1 + 0.2: "0.3",
    35.0: "35.0",
    9007199254740993.0: "9007199254740992.0",
    1e-7 / 3: "3.33333333333333e-08",
}


@pytest.mark.parametrize(("value", "shown"), FLOATS.items())
def test_doubles_are_shown_with_the_digits_that_count_and_printed_exactly(
    value: float, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_table(pa.table({"x": [value]}), "table")
    assert capsys.readouterr().out.splitlines()[-1].strip() == shown
    print_table(pa.table({"x": [value]}), "jsonl")
    assert f"{value!r}".replace("e-0", "e-") in capsys.readouterr().out


def test_single_floats_are_shown_as_they_were_written(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(pa.table({"x": pa.array([0.1, 16777215.0, 3.4028235e38], pa.float32())}), "table")
    assert [line.strip() for line in capsys.readouterr().out.splitlines()[2:]] == ["0.1", "16777215.0", "3.4028234663852886e+38"]


def column(*cells: str) -> list[Column]:
    return [Column("offset", cells, True, True, True), Column("name", ["ann"] * len(cells))]


def test_tables_that_go_on_have_one_header_until_a_value_needs_more_room() -> None:
    writer = Writer(live=True)
    assert writer.lines(column("1"), 80)[0]
    assert writer.lines(column("2", "345"), 80)[0] == []
    header, rows, _ = writer.lines(column("123456789"), 80)
    assert header
    assert "123456789" in rows[0]
    assert writer.lines(column("4"), 80)[0] == []
