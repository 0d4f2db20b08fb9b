"""The three stores of the example, and ways to break them.

python stores.py show         what each of them holds
python stores.py rows         somebody deletes a row of the table, changes another one and adds a third
python stores.py damage       the disk changes a few bytes of a Parquet file
"""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from penstock import SearchIndex
from penstock.sinks import parquet_files, read_parquet


def asked(sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect("shop.db")) as connection, connection:
        return connection.execute(sql).fetchall()


def show() -> None:
    print("table:", ", ".join(f"{user} {total:g}" for user, total in asked("select user, total from spent order by user")))
    with SearchIndex("items") as index:
        print("index:", ", ".join(f"{row['order_id']} {row['item']}" for row in index.find("shoes").to_pylist()))
    orders = read_parquet("lake")
    print("files:", f"{orders.num_rows} orders, {sum(orders['amount'].to_pylist()):g}")


def rows() -> None:
    asked("delete from spent where user = 'bob'")
    asked("update spent set total = 1000 where user = 'alice'")
    asked("insert into spent values ('mallory', 1, 1)")


def damage() -> None:
    with Path(parquet_files("lake").data[0]).open("r+b") as file:
        file.seek(100)
        file.write(b"\x00" * 8)


def main(command: str) -> None:
    {"show": show, "rows": rows, "damage": damage}[command]()


if __name__ == "__main__":
    main(sys.argv[1])
