"""Values of every type: a copy and the stream write the same value in the same way, as JSON that says what the value is."""

import pytest

from capture_postgres import Follow

TYPES = """
create domain percent as numeric(5, 2) check (value between 0 and 100);
create domain names as text[];
create type mood as enum ('sad', 'so so', 'it''s "ok"');
create type pair as (a int, b text);
create type span as range (subtype = int4);
"""
# type: values as SQL, what each becomes
VALUES: dict[str, dict[str, object]] = {
    "smallint": {"-32768": -32768},
    "int": {"2147483647": 2147483647},
    "bigint": {"-9223372036854775808": -9223372036854775808, "9007199254740993": 9007199254740993},
    "boolean": {"true": True, "false": False, "null": None},
    "real": {"'NaN'": "NaN", "'-Infinity'": "-Infinity", "0.1": 0.1, "1e20": 1e20},
    "double precision": {"1e-300": 1e-300, "'-0'": -0.0, "0.1::float8 + 0.2": 0.30000000000000004},
    "numeric": {"'NaN'": "NaN", "'Infinity'": "Infinity", "1e40": "1" + "0" * 40, "1.50": "1.50", "-0.000001": "-0.000001"},
    "numeric(10, 2)": {"12.3": "12.30"},
    "money": {"1234.5": "$1,234.50"},
    "text": {"''": "", r"E'a\n\t\"\\\'\u2028ü😀'": "a\n\t\"\\'\u2028ü😀", r"E'\x01\x7f'": "\x01\x7f", "'NULL'": "NULL"},
    "char(4)": {"'ab'": "ab  "},
    '"char"': {"'x'": "x"},
    "name": {"'n'": "n"},
    "bytea": {r"'\x00ff'": "AP8=", "''": ""},
    "date": {"'2024-02-29'": "2024-02-29", "'infinity'": "9999-12-31", "'-infinity'": "0001-01-01", "'0044-1-1 BC'": "0001-01-01"},
    "timestamp": {"'2024-01-01 10:00:00.5'": "2024-01-01T10:00:00.5", "'infinity'": "9999-12-31T23:59:59.999999"},
    "timestamptz": {"'2024-01-01 10:00+02'": "2024-01-01T08:00:00Z", "'-infinity'": "0001-01-01T00:00:00Z"},
    "time": {"'23:59:59.999999'": "23:59:59.999999", "'24:00'": "24:00:00"},
    "timetz": {"'10:00+02'": "10:00:00+02"},
    "interval": {"'1 year 2 mons -3 days 04:05:06.7'": "1 year 2 mons -3 days +04:05:06.7"},
    "json": {"""'{"a": [1, null]}'""": '{"a": [1, null]}'},
    "jsonb": {"""'{"b": 1, "a": "\\u00fc"}'""": '{"a": "ü", "b": 1}', "'null'": "null"},
    "uuid": {"'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"},
    "inet": {"'10.0.0.1/8'": "10.0.0.1/8"},
    "bit(3)": {"B'101'": "101"},
    "point": {"'(1,2.5)'": "(1,2.5)"},
    "pg_lsn": {"'16/B374D848'": "16/B374D848"},
    "tsvector": {"to_tsvector('simple', 'a b')": "'a':1 'b':2"},
    "int4range": {"'[1,5)'": "[1,5)", "'empty'": "empty"},
    "tstzrange": {"""'["2024-01-01 10:00+02",)'""": '["2024-01-01 08:00:00+00",)'},
    "int4multirange": {"'{[1,2), [4,5)}'": "{[1,2),[4,5)}"},
    "mood": {"'so so'": "so so", "'it''s \"ok\"'": 'it\'s "ok"'},
    "percent": {"99.9": "99.90"},
    "pair": {"row(1, 'a,\"b')": '(1,"a,""b")'},
    "span": {"'[1,2]'": "[1,2]"},
    "int[]": {"'{1,NULL,-3}'": [1, None, -3], "'{}'": [], "'{{1,2},{3,4}}'": [[1, 2], [3, 4]], "'[0:1]={1,2}'": [1, 2]},
    "text[]": {"array['a', 'NULL', null, '', 'b,c', '\"\\', '{']": ["a", "NULL", None, "", "b,c", '"\\', "{"]},
    "bytea[]": {r"array['\x00'::bytea]": ["AA=="]},
    "timestamptz[]": {"array['2024-01-01 10:00+02'::timestamptz]": ["2024-01-01T08:00:00Z"]},
    "boolean[]": {"'{t,f}'": [True, False]},
    "float8[]": {"'{0.1,NaN,1e300}'": [0.1, "NaN", 1e300]},
    "numeric[]": {"'{1.50,NaN}'": ["1.50", "NaN"]},
    "mood[]": {"array['so so', 'sad']::mood[]": ["so so", "sad"]},
    "percent[]": {"array[1]::percent[]": ["1.00"]},
    "pair[]": {"array[row(1, 'a')]::pair[]": ["(1,a)"]},
    "box[]": {"array['(2,2),(1,1)', '(4,4),(3,3)']::box[]": ["(2,2),(1,1)", "(4,4),(3,3)"]},
    "names": {"'{a,b}'": ["a", "b"]},
    "int4range[]": {"array['[1,5)']::int4range[]": ["[1,5)"]},
}


def test_a_copy_and_the_stream_write_every_value_in_the_same_way(follow: Follow) -> None:
    tables = {f"t{i}": (of_type, values) for i, (of_type, values) in enumerate(VALUES.items())}
    ddl = TYPES
    for name, (of_type, values) in tables.items():
        ddl += f"create table {name} (id int primary key, v {of_type}, touched int);"
        ddl += "".join(f"insert into {name} values ({i}, {value}, 0);" for i, value in enumerate(values))
    of = follow(ddl, *tables)
    of.catch_up()
    of.sql("".join(f"update {name} set touched = 1;" for name in tables))
    of.catch_up()
    for name, (of_type, values) in tables.items():
        found = of.changes(name)
        copied, streamed = [row for op, row in found if op == "r"], [row for op, row in found if op == "u"]
        expected = [{"id": i, "v": value, "touched": 0} for i, value in enumerate(values.values())]
        assert copied == expected, of_type
        assert streamed == [row | {"touched": 1} for row in expected], of_type
        assert str(copied[0]["v"]) == str(next(iter(values.values()))), of_type  # -0.0 is equal to 0


KEYS = {  # made of a number
    "bigint": "i - 50",
    "numeric": "case when i = 7 then 'NaN' else i / 7.0 end",
    'text collate "C"': r"E'\'\"\\ä' || i",
    "timestamptz": "case i when 1 then '-infinity' when 2 then 'infinity' else now() + i * interval '1 min' end",
    "bytea": r"'\x00'::bytea || i::text::bytea",
    "uuid": "md5(i::text)::uuid",
    "double precision": "1.0::float8 / (i + 1)",
    "date": "date '2024-01-01' + i",
    "boolean": "i = 1",
    "char(3)": "i::text",
    "mood": "(enum_range(null::mood))[i + 1]",
}


@pytest.mark.parametrize("type", KEYS)
def test_keys_of_any_type_are_copied_in_chunks(follow: Follow, type: str) -> None:
    rows = {"boolean": 2, "mood": 3}.get(type, 120)
    inserted = f"insert into t select {KEYS[type]}, i from generate_series(0, {rows - 1}) i"
    of = follow(f"{TYPES} create table t (k {type} primary key, v int); {inserted}")
    of.chunks_of(7)
    of.catch_up()
    of.sql("update t set v = v + 1000")
    of.catch_up()
    found = of.changes("t")
    copied, streamed = [row for op, row in found if op == "r"], [row for op, row in found if op == "u"]
    assert sorted(row["v"] for row in copied) == list(range(rows))
    assert sorted((str(row["k"]), row["v"] + 1000) for row in copied) == sorted((str(row["k"]), row["v"]) for row in streamed)
    assert sorted(row["v"] for row in of.rows("t")) == [1000 + i for i in range(rows)]


def test_names_that_need_quotes_are_kept(follow: Follow) -> None:
    ddl = """create table "Odd "" name.x" ("the Key" int primary key, "a""b\\c" text, "ü, {}" int, "select" int);
             insert into "Odd "" name.x" values (1, 'x', 2, 3)"""
    of = follow(ddl, 'Odd " name.x')
    of.catch_up()
    of.sql("""update "Odd "" name.x" set "select" = 4; update "Odd "" name.x" set "the Key" = 5""")
    of.catch_up()
    row = {"the Key": 1, 'a"b\\c': "x", "ü, {}": 2, "select": 3}
    moved = row | {"the Key": 5, "select": 4}
    found = of.changes('Odd " name.x')
    assert found == [("r", row), ("u", row | {"select": 4}), ("d", {"the Key": 1}), ("c", moved)]


def test_facts_say_the_same_of_a_table_that_was_copied_and_of_one_that_was_streamed(follow: Follow) -> None:
    columns = ", ".join(f"c{i} {of_type}" for i, of_type in enumerate(VALUES))
    of = follow(f"{TYPES} create table t (id int primary key, {columns}); insert into t values (1)")
    of.catch_up()
    told = of.facts("t")
    of.sql("update t set c0 = 1")
    of.catch_up()
    assert of.facts("t") == told
    assert told["schema"].startswith(
        "id int, c0 smallint, c1 int, c2 long, c3 boolean, c4 float, c5 double, c6 string, c7 decimal(10,2)"
    )
