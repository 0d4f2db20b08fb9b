"""The texts of records, as PostgreSQL writes them, read by columns."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amount import cases
from penstock.capture.triggers.postgres.outbox_sql import Followed, OutboxSql, identifier, literal
from penstock.capture.triggers.postgres.records import RecordShape, record_columns
from penstock.errors import Damaged

VALUE = (
    st.none()
    | st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=8)
    | st.sampled_from(["", '"', "\\", "\\\\", ",", "(", "\n", "\r\n", " ", "NULL", "\\N"])
)


def record_text(values: list[str | None]) -> str:
    """As record_out of the server: a value stands in quotes where it is empty or has one of some characters."""
    return "(" + ",".join("" if value is None else _quoted(value) for value in values) + ")"


def _quoted(value: str) -> str:
    odd = not value or any(character in '"\\(),' or character in " \t\n\r\v\f" for character in value)
    return '"' + value.replace("\\", "\\\\").replace('"', '""') + '"' if odd else value


@settings(max_examples=cases(300))
@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(VALUE, min_size=n, max_size=n), min_size=1, max_size=6)))
def test_every_value_comes_back_as_it_was(rows: list[list[str | None]]) -> None:
    for row in rows:
        row[0] = row[0] or "key"
    found = record_columns(pa.array([record_text(row) for row in rows], pa.utf8()), len(rows[0]))
    assert [list(row) for row in zip(*(column.to_pylist() for column in found), strict=True)] == rows


def test_records_that_are_not_whole_are_noticed() -> None:
    with pytest.raises((Damaged, pa.ArrowInvalid)):
        record_columns(pa.array(["(1,2)", '(1,"2)', "(1,2)"], pa.utf8()), 2)


def test_a_column_that_is_not_stored_is_left_out() -> None:
    shape = RecordShape.of(7, "public", "t", '[["id", 23, -1, ""], ["twice", 23, -1, "v"], ["half", 23, -1, "s"]]')
    assert (shape.fields, shape.kept) == (3, (0, 2))
    assert [column.name for column in shape.relation.columns] == ["id", "half"]


def test_names_and_texts_are_quoted() -> None:
    assert identifier('a"b', "c") == '"a""b"."c"'
    assert literal("it's") == "'it''s'"
    sql = OutboxSql("penstock_shop", "it's mine")
    assert "'it''s mine'" in sql.tables()[1]
    statements = sql.triggers(Followed(('we"ird', "o'clock"), False))
    assert '"we""ird"."o\'clock"' in statements[0]
    assert "changed('we\"ird', 'o''clock')" in statements[0]
    assert all("for each row" in each for each in sql.triggers(Followed(("s", "t"), True))[:3])
