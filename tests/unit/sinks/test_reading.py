"""What databases give back, as columns again: nothing that differs becomes equal on the way."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from penstock.core.schema import Schema
from penstock.sinks.stores.reading import readable_rows


def read(ddl: str, *values: Any) -> list[Any]:
    """Of a column of this type, those that can be a value of it."""
    return readable_rows({"id": range(len(values)), "v": values}, Schema.of(f"id long, v {ddl}"))["v"].to_pylist()


@pytest.mark.parametrize(
    ("ddl", "values", "known"),
    [
        ("long", (1, "2", b"3", Decimal("4.000"), 5.0, None), [1, 2, 3, 4, 5, None]),
        ("boolean", (True, 0, b"1", "false", b"\x01", b"\x00"), [True, False, True, False, True, False]),
        ("date", (date(2024, 1, 15), datetime(2024, 1, 16, tzinfo=UTC), "2024-01-17"), [date(2024, 1, n) for n in (15, 16, 17)]),
        ("decimal(10,2)", (Decimal("1.2500"), "2.5"), [Decimal("1.25"), Decimal("2.50")]),
    ],
)
def test_values_are_read_in_all_their_forms(ddl: str, values: tuple[Any, ...], known: list[Any]) -> None:
    assert read(ddl, *values) == known


@pytest.mark.parametrize(
    ("ddl", "value"),
    [
        ("long", 1.75),
        ("long", Decimal("1.75")),
        ("long", "oops"),
        ("int", 3_000_000_000),
        ("boolean", 2),
        ("boolean", "yes"),
        ("date", datetime(2024, 1, 15, 17, tzinfo=UTC)),
        ("date", "0000-00-00"),
        ("decimal(10,2)", Decimal("1.2599")),
        ("timestamp", "2024-01-15 10:00:00"),
        ("array<long>", "oops"),
        ("string", b"\xff"),
    ],
)
def test_what_no_row_can_hold_counts_as_missing_and_takes_no_other_row_along(ddl: str, value: Any) -> None:
    assert read(ddl, value, None) == [None]
