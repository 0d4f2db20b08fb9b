"""A row with a value of every type, and what may be hostile in keys and texts."""

import decimal
from datetime import UTC, date, datetime
from typing import Any

EVERY_TYPE = (
    "id long, b boolean, i8 tinyint, i16 smallint, i32 int, f float, d double, s string, raw binary, day date, at timestamp, "
    "money decimal(20,10), list array<int>, map map<string,int>, nested struct<a:int,s:string>"
)
ROW: dict[str, Any] = {
    "id": -(2**63),
    "b": True,
    "i8": -128,
    "i16": 32767,
    "i32": -1,
    "f": 0.5,
    "d": 0.1,
    "s": 'tab\tline\r\nquote" \\ 日本 \x00 end',
    "raw": b"\x00\xff\r\n",
    "day": date(1969, 12, 31),
    "at": datetime(2026, 1, 2, 3, 4, 5, 600, tzinfo=UTC),
    "money": decimal.Decimal("0.0000000001"),
    "list": [1, None],
    "map": [("k", 1)],
    "nested": {"a": 1, "s": '"'},
}
NULLS: dict[str, Any] = dict.fromkeys(ROW) | {"id": 2}
HOSTILE = ["", ":", "%", "%25", "%3A", "a:b", "*", "a b\r\n", "{x}", "\x00", "日本", None]
