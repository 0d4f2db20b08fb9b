"""Rows that were written before their table was altered come with the columns that they had, however late they are read."""

from itertools import count
from typing import Any

import pytest

from capture_reference import Change, Plain
from penstock.capture.postgres.connecting import connect
from penstock.capture.postgres.slots import create_publication, create_slot, drop_publication, drop_slot
from penstock.capture.postgres.stream.replication import Replication
from penstock.testing.servers.postgres import PostgresServer
from waiting import until

NUMBERS = count()


@pytest.mark.parametrize(
    ("alter", "now"),
    [("add b int default 5", ["id", "a", "b"]), ("drop a", ["id"]), ("rename a to b", ["id", "b"])],
)
def test_a_row_has_the_columns_that_its_table_had(postgres: PostgresServer, alter: str, now: list[str]) -> None:
    name = f"old_columns_{next(NUMBERS)}"
    postgres.execute(f"create table {name} (id int primary key, a text)")
    with connect(postgres.url) as connection:
        create_publication(connection, name, [("public", name)])
        create_slot(connection, name)
        postgres.execute(f"insert into {name} values (1, 'x')")
        postgres.execute(f"alter table {name} {alter}")
        postgres.execute(f"insert into {name} (id) values (2)")
        plain, changes = Plain(), list[Any]()
        with Replication(postgres.url, name, [name]) as stream:
            assert until(lambda: changes.extend(plain.decode(stream.next(0.1))) or len(changes) >= 4)
        columns = [[column.name for column in said.relation.columns] for said in changes if isinstance(said, Change)]
        assert columns == [["id", "a"], now]
        assert until(
            lambda: (
                connection.execute("select active_pid from pg_replication_slots where slot_name = %s", (name,)).fetchone()
                == (None,)
            )
        )
        drop_slot(connection, name)
        drop_publication(connection, name)
